"""One process's resident memory, as quickly as it can be had: for the moments between two samples."""

from __future__ import annotations

import os

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pid: int) -> int | None:
    """Bytes in memory now; None for a process that is gone or may not be read."""
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
            return int(file.read(128).split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None
