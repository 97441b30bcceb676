"""Where growth leads: at which step a limit is met, with bounds, and whether that may be said yet.

The same arithmetic serves the live forecast and the finding about a run that is still on. It errs on silence: what
slows down is followed to where it would come to rest, and only what passes the limit even so is spoken of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from holter.diagnosis.core.trend import Points, evenly, keeps_on, slope, stairs, trend_of

FEWEST = 6
FEWEST_STEPS = 8
# Of the room between where growth began and the limit: below this it is too early to tell what it will come to.
USED = 0.25
_USED_LONG = 0.08  # for growth that has gone on for very long
_POINTS = 40
_DOUBT = 0.5  # deviations by which growth may slow down more than it seems to
_FASTER = 1.4  # growth that quickens is followed at its later pace


@dataclass(frozen=True)
class Extrapolation:
    """Growth that meets a limit at `at` (a step, or seconds where no steps are known), between two bounds."""

    at: float
    earliest: float
    latest: float
    since: float
    slope: float
    rise: float
    by_epoch: float = 0.0


def extrapolate(points: Points, limit: float, *, used: float = USED, long: bool = False) -> Extrapolation | None:
    """Say where a steady growth meets the limit; None while it is not clear that it will."""
    used = min(used, _USED_LONG) if long else used
    if len(points) < FEWEST or not _worth_a_look(points, limit, used):
        return None
    known = evenly(points, _POINTS)
    if len(known) < FEWEST:
        return None
    found = trend_of(known, _POINTS)
    if not found.grows or found.slope <= 0:
        return None
    body = [point for point in known if point[0] >= found.since]
    if len(body) < FEWEST:
        return None
    end = body[-1][0]
    # The peaks meet the limit first: the line is laid through the upper readings.
    offs = sorted(value - found.slope * (x - end) for x, value in body)
    now, top = offs[len(offs) // 2], offs[int(0.9 * (len(offs) - 1))]
    # Of what bends down, the line runs ahead: nothing lies above the latest readings themselves.
    latest = max(value for _, value in points[-max(5, len(points) // 10) :])
    now, top = min(now, latest), min(top, latest)
    free_before, free = limit - (now - found.rise), limit - top
    if free <= 0 or free_before <= 0 or found.rise < used * free_before:
        return None
    if comes_to_rest(found.rise, min(keeps_on(body, _DOUBT), 1.0)) < free:
        return None
    rate = found.slope
    if found.keeps > _FASTER:
        half = (body[0][0] + end) / 2
        rate = max(rate, slope([point for point in body if point[0] >= half]))
    at = end + free / rate
    width = max(0.07 * (at - end), (at - end) * (found.high - found.low) / (2 * found.slope))
    return Extrapolation(at, max(end, at - width), at + 1.5 * width, found.since, rate, found.rise)


def _worth_a_look(points: Points, limit: float, used: float) -> bool:
    """Tell, at next to no cost, whether there can be growth of any weight: most readings are of calm runs."""
    low, last = min(value for _, value in points), max(value for _, value in points[-5:])
    return last - low >= 0.8 * used * (limit - low)


def comes_to_rest(rise: float, keeps: float) -> float:
    """Give how much is still to come when each stretch adds that part of what the one before it added."""
    if keeps >= 0.97:
        return float("inf")
    later = rise * keeps / (1 + keeps)
    return later * keeps / (1 - keeps)


def extrapolate_by_epoch(levels: Sequence[tuple[float, float]], limit: float, peak_over: float) -> Extrapolation | None:
    """Say where growth from epoch to epoch meets the limit: (step at which each begins, its level) in order."""
    # What the first epoch sets up is no growth; two further ones that climb alike are.
    climbing = stairs([value for _, value in levels])
    if climbing is None or len(levels) < 3:
        return None
    each, keeps = climbing
    rise = levels[-1][1] - levels[0][1]
    free, free_before = limit - levels[-1][1] - peak_over, limit - levels[0][1]
    if free <= 0 or rise < USED * free_before or comes_to_rest(rise, min(1.0, keeps)) < free:
        return None
    span = median(after[0] - before[0] for before, after in pairwise(levels))
    if span <= 0:
        return None
    # So many more ends of epochs fit; the one after them does not.
    at = levels[-1][0] + span * (int(free / each) + 1)
    return Extrapolation(at, at - 0.6 * span, at + span, levels[0][0], each / span, rise, by_epoch=each)
