"""Where the epochs of a run lie, and what a curve over its steps stood at in each of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.core.trend import Points, evenly
from holter.record.events.agent import EpochBegins

_PER_SPAN = 12


@dataclass(frozen=True)
class EpochBegin:
    """An epoch began: its number as the script counts, at which time (monotonic), after how many steps."""

    m: float
    epoch: int
    step: int


@once
def epochs_of(record: RecordLike, pid: int | None) -> tuple[EpochBegin, ...]:
    """Give the beginnings of a process's epochs in order; a second `fit` begins to count anew."""
    found = [
        EpochBegin(event.m, event.epoch or 0, event.step or 0) for event in record.of(EpochBegins) if event.pid == pid
    ]
    return tuple(sorted(found, key=lambda begin: begin.m))


def by_span(points: Points, bounds: Sequence[float]) -> dict[int, list[float]]:
    """Give the readings of each span between two bounds, evenly over its steps.

    Readings at a bound itself are left out: what is done between two epochs may take long, and belongs to neither.
    """
    within: dict[int, list[tuple[float, float]]] = {}
    for x, value in points:
        at = bisect_right(bounds, x) - 1
        if at >= 0 and (x > bounds[at] + 0.5 or at == 0):
            within.setdefault(at, []).append((x, value))
    return {at: [value for _, value in evenly(some, _PER_SPAN)] for at, some in sorted(within.items())}


def levels(points: Points, begins: Sequence[EpochBegin]) -> list[tuple[EpochBegin, float]]:
    """Give the middle value of a curve over steps in each epoch; epochs without a reading are left out."""
    spans = by_span(points, [float(begin.step) for begin in begins])
    return [(begins[at], median(some)) for at, some in spans.items()]


def rises_between(points: Points, bounds: Sequence[float]) -> bool:
    """Tell whether a curve climbs from one span to the next and hardly within them: something is kept at each end."""
    known = [some for some in by_span(points, bounds).values() if len(some) >= 3]
    if len(known) < 3:
        return False
    ends = [(median(some[: len(some) // 3 or 1]), median(some[-(len(some) // 3 or 1) :])) for some in known]
    inside = sum(late - early for early, late in ends[1:])
    climbed = ends[-1][1] - ends[0][1]
    return climbed > 0 and inside < 0.3 * climbed
