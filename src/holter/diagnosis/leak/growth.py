"""The shapes of a memory curve, told by the steps that the run took: growth all along, flat, one jump.

Steps are the measure, not time: readings come ten times as often near the limit, imports take longer than training,
and what is held before the first step (libraries, model, data) is no growth of the training.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from holter.diagnosis.core.epochs import by_span
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.progress import Progress
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.core.trend import evenly, stairs, steepest, trend_of
from holter.diagnosis.memory.memory import MemoryCurve, Points
from holter.record.events.timeline import Sample, StepWindow

# A curve that grew by less than this share of its top has not grown.
_MIN_RISE_SHARE = 0.2
_PER_QUARTER = 9
_BACKWARDS = 8  # of one step: fewer are no trend


@dataclass(frozen=True)
class Growth:
    """How memory went while the run trained: `steady`, `uneven`, `flat` or `unknown`, and by how much."""

    shape: str
    level: float = 0.0
    rise: float = 0.0
    per_step: float = 0.0
    readings: int = 0
    since: int = 0
    per_epoch: float = 0.0


@once
def _steps_at(record: RecordLike, pid: int | None) -> tuple[list[float], list[float]]:
    """Give moments and the step that a process had reached at each of them."""
    known: list[tuple[float, float]] = []
    for line in record.of(StepWindow):
        first, last = line.first, line.last
        if line.pid == pid and last is not None:
            known.append((line.m, float(last)))
            if first is not None:
                known.append((line.m - (line.sum or 0.0), first - 1))
    for sample in record.of(Sample):
        for state in sample.agents:
            step, since = state.step, state.since
            if state.pid == pid and step is not None:
                known.append((sample.m, float(step)))
                if since is not None and since < sample.m:
                    known.append((since, float(step)))  # it has been in this step's phase since then
    known.sort()
    reached, steps = 0.0, []
    for _, at in known:
        reached = max(reached, at)
        steps.append(reached)
    return [m for m, _ in known], steps


def by_step(record: RecordLike, points: Points, progress: Progress) -> Points:
    """Give the readings of a curve while the run trained, each with the step it was taken in instead of a time."""
    times, steps = _steps_at(record, progress.pid)
    found = []
    for m, value in points:
        at = bisect_right(times, m)
        if at == 0:
            continue
        step = steps[at - 1]
        if at < len(times) and times[at] > times[at - 1]:
            step += (steps[at] - step) * (m - times[at - 1]) / (times[at] - times[at - 1])
        if step >= 1:
            found.append((step, value))
    return tuple(found)


def growth_within_step(record: RecordLike, curve: MemoryCurve | None, progress: Progress) -> Growth | None:
    """Name growth from one backward to the next within the step that the run was in last; else None."""
    counted = [
        (sample.m, float(state.backwards or 0))
        for sample in record.of(Sample)
        for state in sample.agents
        if state.pid == progress.pid and (state.step or 0) == (progress.step or 0)
    ]
    if curve is None or not counted or counted[-1][1] < _BACKWARDS:
        return None
    times = [m for m, _ in counted]
    points = tuple(
        (counted[at - 1][1], value)
        for m, value in curve.points
        if (at := bisect_right(times, m)) and counted[at - 1][1]
    )
    found = growth_of(points, int(counted[-1][1]), curve.limit)
    return found if found.shape == "steady" else None


def growth_of(points: Points, last_step: int, limit: float | None) -> Growth:
    """Name the shape of a curve over the steps; what happened within the last step stands apart from it."""
    # The first steps fill caches and allocate what is then reused: their growth is no leak.
    begin = max(2.0, 0.1 * last_step)
    settled = tuple(point for point in points if point[0] >= begin)
    body = tuple(point for point in settled if point[0] < last_step) or settled
    if len(body) < 2:
        return Growth("unknown", readings=len(body))
    top = max(value for _, value in settled)
    start, rise = body[0], body[-1][1] - body[0][1]
    jump = top - body[-1][1]
    each = (top - start[1]) / max(1.0, last_step - start[0])
    if rise >= max(jump, _MIN_RISE_SHARE * top) and _even(body):
        return Growth("steady", start[1], top - start[1], each, len(body))
    level = median(value for _, value in body)
    # Without a limit to measure against, flat means flat against its own size.
    scale, spread = max(level, (limit or 0.0) - level), max(v for _, v in body) - min(v for _, v in body)
    if spread < 0.15 * scale and level < 0.9 * (limit or float("inf")):
        return Growth("flat", level, jump, 0.0, len(body))
    return Growth("uneven" if _grew(body) else "unknown", start[1], rise, each, len(body))


def later_growth(points: Points, last_step: int) -> Growth | None:
    """Name growth that began in the middle of a run and went on to its end, as steadily as any; else None."""
    body = [point for point in points if 2 <= point[0] < last_step]
    found = trend_of(body)
    after = [point for point in body if point[0] >= found.since]
    if not found.grows or len(after) < 8 or last_step - found.since < max(8.0, 0.05 * last_step):
        return None
    top, grown = max(value for _, value in points), body[-1][1] - found.level
    # What came within the last step alone is no growth over the steps. Of what it grew by, no tenth of the way may
    # carry most: that would be one large step, or a few.
    if (
        grown < max(top - body[-1][1], _MIN_RISE_SHARE * top)
        or found.keeps < 0.5
        or steepest(evenly(after), 0.1) > 0.5 * found.rise
    ):
        return None
    return Growth("steady", found.level, top - found.level, found.slope, len(body), since=int(found.since))


def growth_by_epoch(points: Points, bounds: Sequence[float]) -> Growth | None:
    """Name growth that comes once an epoch, of about one size; else None."""
    spans = by_span([point for point in points if point[0] >= 2], bounds)
    known = [median(some) for some in spans.values()]
    climbing = stairs(known) if len(known) >= 4 else None
    if climbing is None or known[-1] - known[0] < _MIN_RISE_SHARE * known[-1] or climbing[1] < 0.4:
        return None
    rise, steps = known[-1] - known[0], points[-1][0] - points[0][0]
    return Growth("steady", known[0], rise, rise / max(1.0, steps), len(points), per_epoch=climbing[0])


def steady_rise(curve: MemoryCurve) -> float | None:
    """Give the rise of a curve that grows all along its time, where no steps are known; None for any other shape."""
    points = curve.points
    if len(points) < 8 or not _even(points):
        return None
    rise = max(value for _, value in points) - points[0][1]
    return rise if rise >= _MIN_RISE_SHARE * curve.peak else None


def _quarters(points: Points) -> list[float]:
    """Give the middle value of each quarter of the way, at even distances: readings are denser near the limit."""
    begin, span = points[0][0], points[-1][0] - points[0][0]
    if span <= 0:
        return [median(value for _, value in points)]
    found: list[list[float]] = [[], [], [], []]
    at = 0
    for n in range(4 * _PER_QUARTER):
        x = begin + span * (n + 0.5) / (4 * _PER_QUARTER)
        while at + 1 < len(points) and points[at + 1][0] <= x:
            at += 1
        found[n // _PER_QUARTER].append(points[at][1])
    return [median(part) for part in found]


def _even(points: Points) -> bool:
    """Tell whether each part of the way carries its share of the rise: a jump or a plateau is something else."""
    middle = _quarters(points) if len(points) >= 8 else []
    if len(middle) == 4:
        total = middle[-1] - middle[0]
        return total > 0 and all(0.15 * total < after - before < 0.6 * total for before, after in pairwise(middle))
    (begin, low), (end, high) = points[0], points[-1]
    if end <= begin or high <= low:
        return False
    # Too few for quarters: each reading lies near the line between the ends. Two readings are no proof.
    off = [abs(value - low - (high - low) * (x - begin) / (end - begin)) for x, value in points]
    return len(points) >= 4 and max(off) < 0.3 * (high - low)


def _grew(points: Points) -> bool:
    """Tell whether a curve ended well above where it began, however unevenly."""
    middle = _quarters(points)
    total = middle[-1] - middle[0]
    if len(middle) < 2 or middle[-1] <= 1.2 * middle[0] or middle[-1] < max(middle):
        return False
    # One jump to a new level is no growth; two and more may be. Of few readings, growth is all that can be said.
    jumps = sum(after - before > 0.1 * total for before, after in pairwise(middle))
    return jumps > 1 or len(points) < 8
