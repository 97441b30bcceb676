"""Who should see the end has to outlive it: of a container that is out of memory, the recorder is the last to go."""

from __future__ import annotations

_LAST = -900  # of -1000, which is never


def spare(*pids: int | None) -> None:
    """Ask the kernel to take others first when memory runs out; only root may, and only Linux knows of it.

    Called once the command runs: what is started later would inherit it.
    """
    for pid in pids:
        if pid is None or pid <= 1:
            continue
        try:
            with open(f"/proc/{pid}/oom_score_adj", "r+") as file:
                if int(file.read()) > _LAST:
                    file.seek(0)
                    file.write(str(_LAST))
        except (OSError, ValueError):
            continue


def own() -> str | None:
    """What the kernel was told of us by whoever started us: the command's own, too."""
    try:
        with open("/proc/self/oom_score_adj") as file:
            return file.read().strip()
    except OSError:
        return None


def set_back(own: str) -> None:
    """In a process that is to be the command: it was born of a recorder that is spared, and is not to be."""
    try:
        with open("/proc/self/oom_score_adj", "r+") as file:
            if file.read().strip() != own:
                file.seek(0)
                file.write(own)
    except OSError:
        pass
