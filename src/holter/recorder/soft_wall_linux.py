"""The soft wall: a little below the true limit of memory, so that an allocation fails and nothing is killed.

The kernel's OOM killer raises nothing that a reflex could catch. `RLIMIT_DATA` does: PyTorch's allocator then reports
that it can't allocate, and the batch is split. The wall also stands before swap. It is set from outside, for processes
whose beacon has said that it can act on such an error, and follows what the rest of the run uses.
"""

from __future__ import annotations

import os
import resource
from typing import Any

from holter.recorder.sampler import nearest_limit

_BELOW = 0.03  # of the limit
_AT_LEAST = 32 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")


class SoftWall:
    """Moves the wall of each armed process at every tick."""

    def __init__(self) -> None:
        self._armed: dict[int, tuple[int, int]] = {}  # pid -> the user's own limits
        self._untouched: dict[int, int] = {}  # pid -> the least of its memory that it had asked for and never used
        self._tidy: set[int] = set()  # processes whose tensors are never given memory that was freed before
        self._known: tuple[float, float] | None = None

    def look(self, sample: dict[str, Any], events: list[dict[str, Any]]) -> None:
        for event in events:
            # Only who can split a batch is helped by an error; others would only die of it sooner.
            split = event.get("k") == "armed" and event.get("act") == "split-batch"
            if split and isinstance(event.get("pid"), int):
                self._arm(event["pid"])
                if event.get("tidy"):
                    self._tidy.add(event["pid"])
        self._known = nearest_limit(sample) or self._known
        if self._known is None:
            return
        used, limit = self._known
        left = int(limit - used - max(_BELOW * limit, _AT_LEAST))
        for pid in list(self._armed):
            self._set(pid, left)

    def _arm(self, pid: int) -> None:
        try:
            self._armed.setdefault(pid, resource.prlimit(pid, resource.RLIMIT_DATA))
        except OSError:
            pass

    def _set(self, pid: int, left: int) -> None:
        soft, hard = self._armed[pid]
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                _, resident, shared, _, _, data, *_ = (int(word) * _PAGE for word in file.read().split())
            # The kernel counts what is asked for, the limit what is touched. What once was touched may be again, so
            # only what never was, such as the stacks of idle threads, comes on top.
            used = resident - shared
            untouched = max(0, data - used)
            if pid not in self._tidy:
                self._untouched[pid] = untouched = min(self._untouched.get(pid, data), untouched)
            wall = max(0, used + left + untouched)
            if soft != resource.RLIM_INFINITY:
                wall = min(wall, soft)
            resource.prlimit(pid, resource.RLIMIT_DATA, (wall, hard))
        except (OSError, ValueError, IndexError):
            del self._armed[pid]  # it is gone, or is not ours to limit
