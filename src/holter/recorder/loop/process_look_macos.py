"""What a process of the same user shows of itself on macOS, by psutil: open files, and what it was started with."""

from __future__ import annotations

import psutil


def open_files(pid: int) -> list[str]:
    """Paths of the files that are open now; none where the process is gone or another user's."""
    try:
        return [one.path for one in psutil.Process(pid).open_files()]
    except (psutil.Error, OSError):
        return []


def environ_of(pid: int) -> dict[str, str]:
    """The environment at its start; what it has changed since is not seen."""
    try:
        return dict(psutil.Process(pid).environ())
    except (psutil.Error, OSError):
        return {}
