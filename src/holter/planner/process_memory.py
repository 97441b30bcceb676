"""What this process holds, and the most that it held: Linux keeps a mark that can be set anew."""

from __future__ import annotations

import ctypes

from ..beacon.reflexes._host_room import held, highest, status, trim

__all__ = ["held", "highest", "leave_no_holes", "of_files", "resident"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)


def resident() -> int:
    """Resident bytes now, without what the C library keeps for later; no mark is set."""
    trim()
    return status("VmRSS")


def of_files() -> int:
    """Resident pages of files: libraries. A forked child begins with next to none of them."""
    return status("RssFile")


def leave_no_holes() -> None:
    """Have every larger block of this process mapped by itself, so that it holds what is in use and no more."""
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is not None:
        adjust(_TRIM_THRESHOLD, 64 * 1024)
        adjust(_MMAP_THRESHOLD, 64 * 1024)
