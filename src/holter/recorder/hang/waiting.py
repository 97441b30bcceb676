"""What the kernel says a process waits in, and for whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holter.recorder.platform import here


def waiting(pid: int) -> dict[str, Any]:
    """State, wait channel, system call and path, as far as they are known; nothing where the platform can't tell."""
    stuck = here("stuck")
    if stuck is None:
        return {}
    try:
        found = stuck.waiting_in(pid)
    except Exception:  # the process may be gone at any moment
        return {}
    return {name: found[name] for name in ("state", "wchan", "syscall", "path") if found.get(name)}


def thread_waiting(pid: int, tid: int) -> dict[str, Any]:
    """The same of one thread, without a look at any other; a reading of a tenth of a millisecond."""
    stuck = here("stuck")
    if stuck is None:
        return {}
    try:
        found = stuck.thread_waiting_in(pid, tid)
    except Exception:  # the thread may be gone at any moment
        return {}
    return {name: found[name] for name in ("state", "syscall", "path") if found.get(name)}


def circle(pid: int, parents: dict[int, int], ours: Path | None) -> list[dict[str, Any]]:
    """The processes that wait for each other for ever, this one among them; none where that is not sure."""
    probe = here("locked")
    try:
        found = probe.circle_of(pid, parents, ours=str(ours) if ours is not None else "") if probe is not None else []
        return list(found)
    except Exception:  # processes may be gone at any moment
        return []


def locked(pid: int, parents: dict[int, int], ours: Path | None, *, helpers: bool) -> bool | None:
    """Tell whether nothing in the run can end this process's wait; None where the platform can't say."""
    probe = here("locked")
    try:
        found: bool | None = None
        if probe is not None:
            found = probe.is_locked(pid, parents, ours=str(ours) if ours is not None else "", helpers=helpers)
        return found
    except Exception:  # processes may be gone at any moment
        return None
