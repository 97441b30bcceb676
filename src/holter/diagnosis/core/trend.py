"""Growth that stands: robust slopes, a test for a trend, where it began, and what only looks like one.

Points are (x, value) with x rising: a step, an epoch or a time. Nothing here knows what the values are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import median

Points = Sequence[tuple[float, float]]

MAX_POINTS = 200
_CANDIDATES = 24
_SURE = 2.5  # standard deviations of the Mann–Kendall statistic
_SLOWED = 0.35  # of the earlier slope: what grows more slowly than that is levelling off
_ONE_JUMP = 0.6  # of the whole rise within a twentieth of the way


@dataclass(frozen=True)
class Trend:
    """How values went: `grows`, `levels-off`, `jump`, `saw`, `flat`, or `short` where too little is known."""

    shape: str
    since: float = 0.0
    level: float = 0.0
    rise: float = 0.0
    slope: float = 0.0
    low: float = 0.0
    high: float = 0.0
    # How the rise of the later half compares with that of the earlier: 1 is a straight line.
    keeps: float = 0.0
    readings: int = 0

    @property
    def grows(self) -> bool:
        return self.shape == "grows"


def evenly(points: Points, most: int = MAX_POINTS) -> list[tuple[float, float]]:
    """Give one middle value for each stretch of the way: readings are denser near a limit and must not outvote."""
    if len(points) <= 2:
        return list(points)
    begin, span = points[0][0], points[-1][0] - points[0][0]
    if span <= 0:
        return [(begin, median(value for _, value in points))]
    wide = span / min(most, len(points))
    found: list[tuple[float, float]] = []
    some: list[tuple[float, float]] = []
    stretch = 0
    for point in points:
        at = min(int((point[0] - begin) / wide), most - 1)
        if some and at != stretch:
            found.append(_middle(some))
            some = []
        stretch = at
        some.append(point)
    found.append(_middle(some))
    return found


def _middle(some: Points) -> tuple[float, float]:
    if len(some) == 1:
        return some[0]
    return median(x for x, _ in some), median(value for _, value in some)


def slope(points: Points) -> float:
    """Give the Theil–Sen slope: the middle of the slopes between all pairs, which no outlier moves."""
    return slope_range(points)[1]


def slope_range(points: Points, sure: float = 1.96) -> tuple[float, float, float]:
    """Give the slope with Sen's bounds on it."""
    n = len(points)
    found = sorted((b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(points) for b in points[i + 1 :] if b[0] > a[0])
    if not found:
        return 0.0, 0.0, 0.0
    wide = sure * sqrt(n * (n - 1) * (2 * n + 5) / 18)
    last = len(found) - 1
    low, high = int((last - wide) / 2), int((last + wide) / 2) + 1
    return found[max(0, low)], median(found), found[min(last, high)]


def certainty(points: Points) -> float:
    """Give the Mann–Kendall statistic in standard deviations: above 2 a rise is hardly chance, below -2 a fall."""
    n = len(points)
    if n < 3:
        return 0.0
    values = [value for _, value in points]
    score = sum((b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1 :])
    spread = sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return (score - (score > 0) + (score < 0)) / spread


def begins(points: Points) -> float:
    """Give where growth began: the bend of the level and the line after it that lie nearest to the points."""
    if len(points) < 5:
        return points[0][0] if points else 0.0
    every = max(1, len(points) // _CANDIDATES)
    bends = [points[n][0] for n in range(0, len(points) - 3, every)]
    missed = [(_misses(points, bend), bend) for bend in bends]
    straight, best = missed[0][0], min(missed)
    # A line from the first point on is the plain answer; a bend has to explain a good deal more.
    return bends[0] if best[0] >= 0.7 * straight else best[1]


def _misses(points: Points, bend: float) -> float:
    n = len(points)
    bent = [max(0.0, x - bend) for x, _ in points]
    mean_x, mean_y = sum(bent) / n, sum(value for _, value in points) / n
    across = sum((x - mean_x) ** 2 for x in bent)
    rate = sum((x - mean_x) * (p[1] - mean_y) for x, p in zip(bent, points, strict=True)) / across if across else 0.0
    rate = max(0.0, rate)
    return sum((p[1] - mean_y - rate * (x - mean_x)) ** 2 for x, p in zip(bent, points, strict=True))


def keeps_on(points: Points, sure: float = 0.0) -> float:
    """Give the later half's slope as a part of the earlier half's: 1 for a line, near 0 for what has levelled off.

    With `sure` it is the least that this many deviations of both slopes allow.
    """
    if len(points) < 4:
        return 1.0
    half = (points[0][0] + points[-1][0]) / 2
    early = [point for point in points if point[0] <= half]
    late = [point for point in points if point[0] >= half]
    if len(early) < 2 or len(late) < 2:
        return 1.0
    before, after = slope_range(early, sure)[2 if sure else 1], slope_range(late, sure)[0 if sure else 1]
    if before <= 0:
        return 2.0 if after > 0 else 0.0
    return max(0.0, after / before)


def largest_fall(points: Points) -> float:
    """Give how far the values fell from a top to a later trough."""
    top, fall = float("-inf"), 0.0
    for _, value in points:
        top = max(top, value)
        fall = max(fall, top - value)
    return fall


def steepest(points: Points, fraction: float = 0.05) -> float:
    """Give the largest rise within a part of the way."""
    wide = fraction * (points[-1][0] - points[0][0])
    best, begin = 0.0, 0
    for n, (x, value) in enumerate(points):
        while begin + 1 < n and x - points[begin][0] > wide:
            begin += 1
        best = max(best, value - points[begin][1])
    return best


def trend_of(points: Points, most: int = MAX_POINTS) -> Trend:
    """Name the shape of a series, and measure the growth where it is one."""
    known = evenly(points, most)
    n = len(known)
    if n < 4:
        return Trend("short", level=known[0][1] if known else 0.0, readings=n)
    since = begins(known)
    body = [point for point in known if point[0] >= since]
    if len(body) < 4:
        body, since = known, known[0][0]
    low, rate, high = slope_range(body)
    rise, level = rate * (body[-1][0] - body[0][0]), median(value for _, value in known if _ <= since)
    keeps = keeps_on(body)
    shape = _shape(known, body, rise, keeps)
    return Trend(shape, since, level, max(0.0, rise), rate, low, high, keeps, n)


def _shape(known: Points, body: Points, rise: float, keeps: float) -> str:
    total_rise = known[-1][1] - known[0][1]
    if rise <= 0 or certainty(body) < (_SURE if len(body) >= 8 else 1.6):
        # A ramp and then a plateau: there was a rise, and it is over.
        early = [point for point in known if point[0] <= known[0][0] + (known[-1][0] - known[0][0]) / 3]
        was = len(early) >= 3 and slope(early) > 0 and total_rise > 3 * _noise(known) and certainty(early) > 1.5
        return "levels-off" if was else "flat"
    if rise < 2 * _noise(body):
        return "flat"
    if len(known) >= 8 and steepest(known) > _ONE_JUMP * max(total_rise, rise):
        return "jump"
    if largest_fall(known) > 0.5 * max(total_rise, rise):
        return "saw"
    if keeps < _SLOWED or _stands_still(body, rise):
        return "levels-off"
    return "grows"


def _stands_still(body: Points, rise: float) -> bool:
    """Tell whether the last quarter carries next to nothing of the rise."""
    if len(body) < 8:
        return False
    begin = body[0][0] + 0.75 * (body[-1][0] - body[0][0])
    late = [point for point in body if point[0] >= begin]
    return len(late) >= 3 and slope(late) * (late[-1][0] - late[0][0]) < 0.06 * rise


def _noise(points: Points) -> float:
    """Give the usual distance between neighbours beyond what the way they go explains."""
    steps = [b[1] - a[1] for a, b in pairwise(points)]
    usual = median(steps)
    return 1.5 * median(abs(step - usual) for step in steps)


def stairs(levels: Sequence[float]) -> tuple[float, float] | None:
    """Give the usual rise from each level to the next, and how it keeps on; None when the levels do not climb."""
    rises = [after - before for before, after in pairwise(levels)]
    if len(rises) < 2:
        return None
    usual = median(rises)
    ranked = sorted(rises[1:])
    odd = len(rises) // 6  # what is held for a moment when a level is read may be in one level and not in the next
    # The first may hold a little that is set up once; all are alike when something is kept each time.
    if usual <= 0 or ranked[0] < -0.2 * usual or rises[0] <= 0 or rises[0] > 3 * usual:
        return None
    if ranked[odd] < 0.4 * usual or ranked[-1 - odd] > 2.5 * usual:
        return None
    half = len(rises) // 2
    early, late = sum(rises[:half]) / half, sum(rises[-half:]) / half
    return usual, late / early
