"""One training step as a list of allocations and releases, and the height of its memory.

The ledger writes it, operation by operation; everything here is arithmetic. Two timelines of the same step at two
batch sizes have the same events with other sizes: every block is a line in the batch size, so the step can be drawn
at any size without being run again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

PARTS = ("parameters", "gradients", "optimizer", "activations", "temporary")
ALLOCATE, RELEASE, MOMENT, MARK = 0, 1, 2, 3

Event = tuple[int, int, int]  # what, which block (or mark, or call), how many bytes
Program = tuple[tuple[int, int], ...]  # what an operation takes and gives back: block and bytes, or 0 for given back


@dataclass
class Timeline:
    """What one step does with memory. Blocks that live before it are its first events."""

    events: list[Event] = field(default_factory=list)
    parts: dict[int, str] = field(default_factory=dict)  # block -> the part that it belongs to, where it is known
    marks: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)  # operations in order; a moment's number is the place in it
    programs: dict[int, Program] = field(default_factory=dict)  # call -> its moment block by block, where it is known

    def mark(self, name: str) -> None:
        """A phase begins."""
        self.marks.append(name)
        self.events.append((MARK, len(self.marks) - 1, 0))


@dataclass(frozen=True)
class Summit:
    """The highest point: bytes, by part, and the phase in which it is reached."""

    total: int
    parts: dict[str, int]
    phase: str


def settle(timeline: Timeline) -> None:
    """Say of every block that has no part yet what it is: kept from forward to backward, or only passing."""
    born: dict[int, str] = {}
    passing = set()
    phase = "before"
    for what, number, _size in timeline.events:
        if what == MARK:
            phase = timeline.marks[number]
        elif what == ALLOCATE:
            born[number] = phase
        elif what == RELEASE and phase == "forward" and born.get(number) == "forward":
            passing.add(number)
    for number, phase in born.items():
        if number not in timeline.parts:
            kept = phase in ("before", "batch", "forward") and number not in passing
            timeline.parts[number] = "activations" if kept else "temporary"


def summit(timeline: Timeline, quantum: int = 1) -> Summit:
    """Find the highest point, with blocks rounded up to the allocator's quantum."""
    live: dict[int, int] = {}
    now = dict.fromkeys(PARTS, 0)
    total = best = 0
    at = dict(now)
    phase = where = "before"
    for what, number, size in timeline.events:
        if what == ALLOCATE:
            held = -(-size // quantum) * quantum
            live[number] = held
            total += held
            now[timeline.parts[number]] += held
            if total > best:
                best, at, where = total, dict(now), phase
        elif what == RELEASE:
            held = live.pop(number, 0)
            total -= held
            now[timeline.parts[number]] -= held
        elif what == MOMENT:
            if size and total + size > best:
                best, where = total + size, phase
                at = dict(now)
                at["temporary"] += size
        else:
            phase = timeline.marks[number]
    return Summit(best, at, where)


def between(first: Timeline, second: Timeline, one: int, two: int, wanted: int) -> Timeline | None:
    """Draw the step at another batch size from those at two; None where they are not the same step."""
    if one == two or len(first.events) != len(second.events) or first.parts != second.parts:
        return None
    share = (wanted - one) / (two - one)
    events: list[Event] = []
    for (what, number, size), (same, as_number, other) in zip(first.events, second.events):
        if what != same or number != as_number:
            return None
        events.append((what, number, max(0, round(size + share * (other - size))) if size != other else size))
    return Timeline(events, first.parts, first.marks, first.calls)


def with_moments(
    timeline: Timeline, size_of: Callable[[str], int | None], program_of: Callable[[str], Program | None] | None = None
) -> Timeline:
    """The same step with what each operation takes while it runs; None leaves a moment as it was."""
    known = [size_of(name) for name in timeline.calls]
    programs = dict(timeline.programs)
    for number, name in enumerate(timeline.calls):
        program = program_of(name) if program_of is not None else None
        if program is not None:
            programs[number] = program
    events = [
        (what, number, size if what != MOMENT or known[number] is None else known[number] or 0)
        for what, number, size in timeline.events
    ]
    return Timeline(events, timeline.parts, timeline.marks, timeline.calls, programs)


def without_spare_moments(timeline: Timeline) -> Timeline:
    """The same step where kernels that can do with less memory do so."""
    return with_moments(timeline, lambda name: 0 if is_spare(name) else None)


def is_spare(call: str) -> bool:
    """Convolutions have algorithms that need no memory of their own, and cuDNN goes on to them where it must."""
    return "convolution" in call
