"""Notices that a file changed, came or went, by looking again and again: no system is asked to tell."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

# A look costs a stat of each file: of many files it is taken less often, for a tenth of one core at most.
_EVERY_S = 0.5
_SHARE = 0.1
# An editor writes in several steps, and git many files.
_SETTLES_S = 0.1

Look = dict[str, tuple[int, int, int] | None]


def look_at(files: Iterable[str]) -> Look:
    """Give what tells one state of some files from the next; None for one that is not there."""
    seen: Look = {}
    for path in files:
        try:
            about = os.stat(path)
        except OSError:
            seen[path] = None
        else:
            seen[path] = (about.st_mtime_ns, about.st_size, about.st_ino)
    return seen


def next_change(before: Look, look: Callable[[], Look]) -> Look:
    """Wait until the files look otherwise than before and change no more; give how they look then."""
    while True:
        begun = time.monotonic()
        now = look()
        took = time.monotonic() - begun
        if now != before:
            break
        time.sleep(max(_EVERY_S, took / _SHARE))
    while True:
        time.sleep(_SETTLES_S)
        later = look()
        if later == now:
            return now
        now = later
