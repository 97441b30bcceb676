"""A heap without holes: the C library maps each larger block by itself, and gives it back as soon as it is freed.

A process has to be started so. Pages that are mapped anew with every block cost time, which huge pages mostly make up
for where the kernel gives them to those who ask.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping

NAME = "GLIBC_TUNABLES"
WORDS = "glibc.malloc.mmap_threshold=1048576:glibc.malloc.hugetlb=1"
_FROM = 1 << 20  # bytes of a block that is mapped
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)


def can_be_set() -> bool:
    """Tell whether the C library is one that knows how."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):
        return False


def setting(environ: Mapping[str, str]) -> dict[str, str]:
    """What to put into the environment of a process, beside what the user has tuned there."""
    own = environ.get(NAME, "")
    return {NAME: f"{own}:{WORDS}" if own else WORDS}


def is_set(environ: Mapping[str, str]) -> bool:
    """Tell whether a process with this environment was started so."""
    found = re.findall(r"glibc\.malloc\.mmap_threshold=(\w+)", environ.get(NAME, ""))
    found = found or [environ.get("MALLOC_MMAP_THRESHOLD_", "")]
    try:
        return can_be_set() and 0 < int(found[-1], 0) <= _FROM
    except ValueError:
        return False


def leave_no_holes() -> None:
    """The same for this process, from now on and for smaller blocks too: small steps have smaller ones."""
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is not None:
        adjust(_TRIM_THRESHOLD, 64 * 1024)
        adjust(_MMAP_THRESHOLD, 64 * 1024)
