"""One training step as a list of allocations and releases, and the height of its memory.

The ledger writes it, operation by operation; everything here is arithmetic. Two timelines of the same step at two
batch sizes have the same events with other sizes: every block is a line in the batch size, so the step can be drawn
at any size without being run again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PARTS = ("parameters", "gradients", "optimizer", "activations", "temporary")
ALLOCATE, RELEASE, MOMENT, MARK = 0, 1, 2, 3

Event = tuple[int, int, int]  # what, which block (or mark), how many bytes


@dataclass
class Timeline:
    """What one step does with memory. Blocks that live before it are its first events."""

    events: list[Event] = field(default_factory=list)
    parts: dict[int, str] = field(default_factory=dict)  # block -> the part that it belongs to, where it is known
    marks: list[str] = field(default_factory=list)

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
            if total + size > best:
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
    return Timeline(events, first.parts, first.marks)
