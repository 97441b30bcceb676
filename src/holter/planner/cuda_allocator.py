"""What PyTorch's CUDA allocator makes of a step: it takes segments from the driver and cuts blocks out of them.

So a step can fail although its tensors would fit: what is free lies in pieces. This is the allocator of
CUDACachingAllocator.cpp in small, with its two pools, its best fit, and what it does when a limit is reached: give all
unused segments back and try once more.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from .timeline import ALLOCATE, MARK, MOMENT, RELEASE, Program, Timeline, is_spare

QUANTUM = 512
_SMALL = 1 << 20
_SMALL_SEGMENT = 2 << 20
_LARGE_SEGMENT = 20 << 20
_FROM_HERE_OWN_SEGMENT = 10 << 20
_ROUND_LARGE = 2 << 20


class _Block:
    __slots__ = ("after", "before", "free", "number", "size", "small")

    def __init__(self, number: int, size: int, small: bool) -> None:
        self.number, self.size, self.small = number, size, small
        self.free = True
        self.before: _Block | None = None
        self.after: _Block | None = None


class Allocator:
    """The state of one device's allocator under a limit (None: there is none)."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.reserved = self.highest = 0
        self.made = 0
        self.blocks: dict[int, _Block] = {}
        self.free: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])  # large, small: (size, number)

    def take(self, size: int) -> int | None:
        """Take a block; None when it does not fit below the limit."""
        size = max(QUANTUM, -(-size // QUANTUM) * QUANTUM)
        small = size <= _SMALL
        pool = self.free[small]
        found = bisect_left(pool, (size, -1))
        if found < len(pool):
            block = self.blocks[pool.pop(found)[1]]
        else:
            made = self._segment(size, small)
            if made is None:
                return None
            block = made
        rest = block.size - size
        if rest >= QUANTUM if small else rest > _SMALL:
            part = self._make(rest, small)
            part.before, part.after = block, block.after
            if block.after is not None:
                block.after.before = part
            block.after = part
            block.size = size
            insort(pool, (part.size, part.number))
        block.free = False
        return block.number

    def give(self, number: int) -> None:
        """Give a block back; it joins its free neighbours."""
        block = self.blocks[number]
        pool = self.free[block.small]
        for other in (block.before, block.after):
            if other is not None and other.free:
                del pool[bisect_left(pool, (other.size, other.number))]
                first, second = (other, block) if other is block.before else (block, other)
                first.size += second.size
                first.after = second.after
                if second.after is not None:
                    second.after.before = first
                del self.blocks[second.number]
                block = first
        block.free = True
        insort(pool, (block.size, block.number))

    def _segment(self, size: int, small: bool) -> _Block | None:
        if small:
            whole = _SMALL_SEGMENT
        elif size < _FROM_HERE_OWN_SEGMENT:
            whole = _LARGE_SEGMENT
        else:
            whole = -(-size // _ROUND_LARGE) * _ROUND_LARGE
        if self.limit is not None and self.reserved + whole > self.limit:
            self._give_back_unused()
            if self.reserved + whole > self.limit:
                return None
        self.reserved += whole
        self.highest = max(self.highest, self.reserved)
        return self._make(whole, small)

    def _make(self, size: int, small: bool) -> _Block:
        self.made += 1
        block = self.blocks[self.made] = _Block(self.made, size, small)
        return block

    def _give_back_unused(self) -> None:
        for pool in self.free:
            whole = [entry for entry in pool if self._is_whole(entry[1])]
            for entry in whole:
                pool.remove(entry)
                del self.blocks[entry[1]]
                self.reserved -= entry[0]

    def _is_whole(self, number: int) -> bool:
        block = self.blocks[number]
        return block.before is None and block.after is None


def _run(allocator: Allocator, program: Program) -> bool:
    """Take and give back what an operation does; False where it did not fit."""
    held: dict[int, int] = {}
    for number, size in program:
        if not size:
            allocator.give(held.pop(number))
            continue
        taken = allocator.take(size)
        if taken is None:
            for one in held.values():
                allocator.give(one)
            return False
        held[number] = taken
    return True


def reserved(timeline: Timeline, limit: int | None = None, steps: int = 3, roomy: bool = False) -> int | None:
    """The most that the allocator takes from a program's first step on; None when it runs out.

    The optimizer makes its state at the end of the first step, in the holes that the step has left, and there it stays.
    """
    allocator = Allocator(limit)
    where: dict[int, int] = {}
    begin = next((n for n, event in enumerate(timeline.events) if event[0] == MARK), 0)
    before = {number: size for what, number, size in timeline.events[:begin] if what == ALLOCATE and size}
    late = {number: size for number, size in before.items() if timeline.parts.get(number) == "optimizer"}

    def take(number: int, size: int) -> bool:
        taken = allocator.take(size)
        if taken is not None:
            where[number] = taken
        return taken is not None

    if not all(take(number, size) for number, size in before.items() if number not in late):
        return None
    for turn in range(steps):
        for what, number, size in timeline.events[begin:]:
            if what == ALLOCATE and size:
                if not take(number, size):
                    return None
            elif what == RELEASE and number in where:
                allocator.give(where.pop(number))
            elif what == MOMENT and size:
                program = timeline.programs.get(number, ((0, size), (0, 0)))
                if not _run(allocator, program) and (roomy or not is_spare(timeline.calls[number])):
                    return None
            elif what == MARK and turn == 0 and timeline.marks[number] == "optimizer":
                fits = all(take(*one) for one in late.items())
                if not fits:
                    return None
        for number in [number for number in where if number not in before]:
            allocator.give(where.pop(number))
    return allocator.highest
