"""What PyTorch's CUDA allocator makes of a step: it takes segments from the driver and cuts blocks out of them.

So a step can fail although its tensors would fit: what is free lies in pieces. This is the allocator of
CUDACachingAllocator.cpp in small, with its two pools, its best fit, and what it does when a limit is reached: give all
unused segments back and try once more.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from ..timeline import ALLOCATE, MARK, MOMENT, RELEASE, Program, Timeline, is_spare

QUANTUM = 512
_SMALL_BYTES = 1 << 20
_SMALL_SEGMENT = 2 << 20
_LARGE_SEGMENT = 20 << 20
_FROM_HERE_OWN_SEGMENT = 10 << 20
_ROUND_LARGE = 2 << 20
# What cuBLAS does.
_PRODUCTS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.linear", "aten._addmm_activation")


class _Block:
    __slots__ = ("address", "after", "before", "free", "size", "small")

    def __init__(self, address: int, size: int, small: bool) -> None:
        self.address, self.size, self.small = address, size, small
        self.free = True
        self.before: _Block | None = None
        self.after: _Block | None = None


class Allocator:
    """The state of one device's allocator under a limit (None: there is none)."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.reserved = self.highest = 0
        self.end = 0  # the driver hands out addresses one after the other
        self.blocks: dict[int, _Block] = {}  # by address
        self.free: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])  # large, small: (size, address)

    def take(self, size: int) -> int | None:
        """Take a block and give its address; None when it does not fit. Of equals the lowest is taken."""
        size = max(QUANTUM, -(-size // QUANTUM) * QUANTUM)
        small = size <= _SMALL_BYTES
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
        if rest >= QUANTUM if small else rest > _SMALL_BYTES:
            remainder = self._make(block.address + size, rest, small)
            remainder.before, remainder.after = block, block.after
            if block.after is not None:
                block.after.before = remainder
            block.after = remainder
            block.size = size
            insort(pool, (remainder.size, remainder.address))
        block.free = False
        return block.address

    def give(self, address: int) -> None:
        """Give a block back; it joins its free neighbours."""
        block = self.blocks[address]
        pool = self.free[block.small]
        for other in (block.before, block.after):
            if other is not None and other.free:
                del pool[bisect_left(pool, (other.size, other.address))]
                first, second = (other, block) if other is block.before else (block, other)
                first.size += second.size
                first.after = second.after
                if second.after is not None:
                    second.after.before = first
                del self.blocks[second.address]
                block = first
        block.free = True
        insort(pool, (block.size, block.address))

    def _segment(self, size: int, small: bool) -> _Block | None:
        if small:
            segment_size = _SMALL_SEGMENT
        elif size < _FROM_HERE_OWN_SEGMENT:
            segment_size = _LARGE_SEGMENT
        else:
            segment_size = -(-size // _ROUND_LARGE) * _ROUND_LARGE
        if self.limit is not None and self.reserved + segment_size > self.limit:
            self._give_back_unused()
            if self.reserved + segment_size > self.limit:
                return None
        self.reserved += segment_size
        self.highest = max(self.highest, self.reserved)
        self.end += segment_size
        return self._make(self.end - segment_size, segment_size, small)

    def _make(self, address: int, size: int, small: bool) -> _Block:
        block = self.blocks[address] = _Block(address, size, small)
        return block

    def _give_back_unused(self) -> None:
        for pool in self.free:
            unused = [entry for entry in pool if self._is_unsplit(entry[1])]
            for entry in unused:
                pool.remove(entry)
                del self.blocks[entry[1]]
                self.reserved -= entry[0]

    def _is_unsplit(self, address: int) -> bool:
        block = self.blocks[address]
        return block.before is None and block.after is None


def _first_product(allocator: Allocator, call: str, blas: int, products: set[str]) -> bool:
    phase, name = call.split()[:2]
    if not blas or phase in products or not name.startswith(_PRODUCTS):
        return True
    products.add(phase)
    return allocator.take(blas) is not None


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


def reserved(
    timeline: Timeline, limit: int | None = None, steps: int = 3, roomy: bool = False, blas: int = 0
) -> int | None:
    """The most that the allocator takes from a program's first step on; None when it runs out.

    The optimizer makes its state at the end of the first step, in the holes that the step has left, and there it stays.
    So do the workspaces that cuBLAS takes with the first product of forward and of backward.
    """
    allocator = Allocator(limit)
    where: dict[int, int] = {}
    products: set[str] = set()  # phases that have had their first
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
            elif what == MOMENT and (size or blas):
                if not _first_product(allocator, timeline.calls[number], blas, products):
                    return None
                program = timeline.programs.get(number, ((0, size), (0, 0)) if size else ())
                if not _run(allocator, program) and (roomy or not is_spare(timeline.calls[number])):
                    return None
            elif what == MARK and turn == 0 and timeline.marks[number] == "optimizer":
                fits = all(take(*one) for one in late.items())
                if not fits:
                    return None
        for number in [number for number in where if number not in before]:
            allocator.give(where.pop(number))
    return allocator.highest
