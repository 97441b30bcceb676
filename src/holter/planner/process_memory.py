"""What this process holds, and the most that it held: Linux keeps a mark that can be set anew."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)


def held() -> int | None:
    """Resident bytes now; the mark of the highest begins here. None where there is no such mark."""
    _trim()
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return None
    return _status("VmRSS")


def resident() -> int:
    """Resident bytes now, without what the C library keeps for later; no mark is set."""
    _trim()
    return _status("VmRSS") or 0


def of_files() -> int:
    """Resident pages of files: libraries. A forked child begins with next to none of them."""
    return _status("RssFile") or 0


def leave_no_holes() -> None:
    """Have every larger block of this process mapped by itself, so that it holds what is in use and no more."""
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is not None:
        adjust(_TRIM_THRESHOLD, 64 * 1024)
        adjust(_MMAP_THRESHOLD, 64 * 1024)


def _trim() -> None:
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)


def highest() -> int:
    """The most since `held` was asked."""
    return _status("VmHWM") or 0


def _status(name: str) -> int | None:
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith(name + ":"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
