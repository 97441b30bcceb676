"""What the C library's allocator makes of a step: on a CPU the process holds more than its tensors do.

A freed block leaves a hole in the heap until something fits into it, and what fits depends on every small object in
between. So the step is run on fake tensors once more, in a process of its own, and each of its blocks is really taken
and given back, but never touched: the heap grows as it would, and no memory is used.
"""

from __future__ import annotations

import ctypes
from typing import Any

from .timeline import ALLOCATE, MARK, RELEASE, Timeline

_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
_MAPPED_FROM = 32 << 20  # glibc's own bound: what is larger goes back to the system when it is freed


class _Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


class Heap:
    """Takes and gives blocks of the process's own heap, and knows how far it was stretched."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(None)
        self.library.mallinfo2.restype = _Info
        self.library.free.argtypes = [ctypes.c_void_p]
        self.library.malloc_trim(0)
        self.taken: dict[tuple[int, int], int] = {}
        self.before = self._stretched()
        self.highest = 0

    def _stretched(self) -> int:
        info = self.library.mallinfo2()
        return int(info.arena + info.hblkhd)

    def take(self, block: tuple[int, int], size: int) -> None:
        pointer = ctypes.c_void_p()
        if size and not self.library.posix_memalign(ctypes.byref(pointer), ctypes.c_size_t(64), ctypes.c_size_t(size)):
            self.taken[block] = int(pointer.value or 0)
            self.highest = max(self.highest, self._stretched() - self.before)

    def give(self, block: tuple[int, int]) -> None:
        address = self.taken.pop(block, 0)
        if address:
            self.library.free(address)


def heap_or_none() -> Heap | None:
    """The heap, where the C library tells about it (glibc from 2.33 on)."""
    try:
        return Heap()
    except (AttributeError, OSError):
        return None


def stretched_by(fakes: Any, rows: int, steps: int = 3) -> int | None:
    """What a process holds for a few steps of this size, holes included; to be asked in a process of its own."""
    heap = heap_or_none()
    if heap is None:
        return None
    lasting = 0
    for number in range(steps):
        timeline = fakes.trace(rows, heap)
        if number:
            # What stays is taken again with every trace, beside what the last one still holds.
            lasting = stays(timeline)
    return heap.highest - lasting * (steps - 1)


def stays(timeline: Timeline) -> int:
    """What lives before the step begins: weights and the optimizer's state, which are no holes' concern."""
    total = 0
    for what, _number, size in timeline.events:
        if what == MARK:
            break
        total += size if what == ALLOCATE else 0
    return total


def in_the_heap(timeline: Timeline) -> int:
    """The most that is held at once in blocks small enough for the heap: only these leave holes."""
    live: dict[int, int] = {}
    total = best = 0
    for what, number, size in timeline.events:
        if what == ALLOCATE and size <= _MAPPED_FROM:
            live[number] = size
            total += size
            best = max(best, total)
        elif what == RELEASE:
            total -= live.pop(number, 0)
    return best
