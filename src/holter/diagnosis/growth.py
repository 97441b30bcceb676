"""The shape of a memory curve: a steady rise, a flat line, or neither."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from holter.diagnosis.memory import MemoryCurve, Points
from holter.diagnosis.progress import Progress


def during_steps(curve: MemoryCurve | None, progress: Progress) -> Points:
    """Give the part of a curve that lies within the steps, without the first tenth of it."""
    if curve is None or progress.first_step_m is None:
        return curve.points if curve is not None else ()
    begin, last = progress.first_step_m, curve.points[-1][0]
    # The first steps fill caches and allocate what is then reused: their growth is no leak.
    begin += 0.1 * max(0.0, last - begin)
    return tuple(point for point in curve.points if point[0] >= begin)


def _quarters(points: Points) -> list[float]:
    begin, span = points[0][0], points[-1][0] - points[0][0]
    parts: list[list[float]] = [[], [], [], []]
    for m, value in points:
        parts[min(3, int(4 * (m - begin) / span)) if span > 0 else 0].append(value)
    return [median(part) for part in parts if part]


def steady_rise(points: Sequence[tuple[float, float]]) -> float | None:
    """Give the rise of a curve that grows all along, or None for any other shape."""
    if len(points) < 8:
        return None
    middle = _quarters(tuple(points))
    low, high = points[0][1], max(value for _, value in points)
    if len(middle) < 4 or high <= 0 or high - low < 0.2 * high:
        return None
    rises = [b - a for a, b in pairwise(middle)]
    total = middle[-1] - middle[0]
    # Each third of the way carries its share: a jump or a plateau is something else.
    return high - low if total > 0 and all(0.15 * total < rise < 0.6 * total for rise in rises) else None


def flat_level(points: Points, curve: MemoryCurve | None) -> float | None:
    """Give the level of a curve that was flat until its last moment."""
    if curve is None or len(points) < 8:
        return None
    body = [value for _, value in points[: max(6, int(len(points) * 0.9))]]
    level = median(body)
    spread = max(body) - min(body)
    # Without a limit to measure against, flat means flat against its own size.
    scale = max(level, (curve.limit or 0.0) - level)
    return level if spread < 0.15 * scale and level < 0.9 * (curve.limit or float("inf")) else None


def grew(points: Points) -> bool:
    """Tell whether a curve ended well above where it began, however unevenly."""
    middle = _quarters(points)
    total = middle[-1] - middle[0]
    if len(middle) < 3 or middle[-1] <= 1.2 * middle[0] or middle[-1] < max(middle):
        return False
    # One jump to a new level is no growth; two and more may be.
    return sum(after - before > 0.1 * total for before, after in pairwise(middle)) > 1
