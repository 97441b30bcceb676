"""What a process of the same user shows of itself on Linux: the files it holds open, and what it was started with."""

from __future__ import annotations

from holter.probes.procfs_linux import names_a_file, open_paths


def open_files(pid: int) -> list[str]:
    """Paths of the files that are open now; none where the process is gone or another user's."""
    return [path for _, path in open_paths(pid) if names_a_file(path)]


def environ_of(pid: int) -> dict[str, str]:
    """The environment at its start; what it has changed since is not seen."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)
