"""One gauge over the course of a run: its readings by step, thinned so that weeks fit into a few hundred, and what was
forecast of it: when that has to be said again, when it is off the table, and its words."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from holter.diagnosis.core.epochs import by_span
from holter.diagnosis.core.trend import evenly, slope
from holter.diagnosis.forecast.extrapolate import Extrapolation
from holter.diagnosis.forecast.gauges import Gauge
from holter.diagnosis.forecast.pace import Pace
from holter.units import count, duration

_MAX_POINTS = 240
_FIRST_STEPS = 2  # the first steps allocate what is then reused
_MOVED_SHARE = 0.3
_REPORTED_EVERY_S = 10.0  # seconds between two words on the same wall


class GaugeSeries:
    """The readings of one gauge, and what was last said of it."""

    def __init__(self, gauge: Gauge) -> None:
        self.gauge = gauge
        self.by_step = False
        self.points: list[tuple[float, float]] = []
        self.looked = float("-inf")
        self.forecast: ForecastMade | None = None
        self.agreed = 0
        self._own: list[tuple[float, float]] = []
        self._turn = 0

    def limit_moved(self, limit: float) -> bool:
        """Tell whether the wall is another one than before."""
        return abs(limit - self.gauge.limit) > 0.02 * self.gauge.limit

    def add(self, gauge: Gauge, pace: Pace) -> None:
        """Take in a reading; with the first step all that came before it is forgotten: it was no training."""
        self.gauge = gauge
        if pace.step > 0 and not self.by_step:
            self.by_step, self.points, self._own = True, [], []
        if self.by_step and pace.step < _FIRST_STEPS:
            return
        x = float(pace.step) if self.by_step else pace.now
        if pace.turn != self._turn:
            self.points, self._own, self._turn = [], [], pace.turn  # another process is the trainer now
        self.points.append((x, gauge.used))
        if len(self.points) > _MAX_POINTS:
            self.points = _thinned(self.points)
        if gauge.own is not None:
            self._own.append((x, gauge.own))
            if len(self._own) > _MAX_POINTS:
                self._own = _thinned(self._own)

    def is_own(self, ahead: Extrapolation) -> bool:
        """Tell whether the run itself carries at least half of a growth that others may have a part in."""
        if self.gauge.own is None:
            return True
        within = evenly([point for point in self._own if point[0] >= ahead.since], 40)
        return len(within) >= 3 and slope(within) >= 0.5 * ahead.slope

    def rises(self, total_rise: float) -> int:
        """Give how many readings lie above the one before them by a part of the whole rise that counts."""
        return sum(after[1] - before[1] > 0.02 * total_rise for before, after in pairwise(self.points))

    def levels(self, begins: list[tuple[int, int]]) -> list[tuple[float, float]]:
        """Give the step at which each epoch began and the middle reading in it, once it has three."""
        steps = [step for step, _ in begins]
        last = len(steps) - 1
        # Of the epoch that is on, a first reading alone says little.
        spans = by_span(self.points, steps).items()
        return [(float(steps[at]), median(some)) for at, some in spans if at < last or len(some) >= 3]

    def over_level(self, begins: list[tuple[int, int]]) -> float:
        """Give how far an epoch's highest reading lies above its middle one."""
        spans = list(by_span(self.points, [step for step, _ in begins]).values())[-3:]
        return median(max(some) - median(some) for some in spans) if spans else 0.0


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Keep the last quarter as it is and half of what lies before it."""
    late = len(points) * 3 // 4
    return [*points[:late:2], *points[late:]]


@dataclass(frozen=True)
class ForecastMade:
    """A forecast that was said: at which step (or time) and moment, and what was used then."""

    ahead: Extrapolation
    x: float
    m: float
    used: float


def moved_far(forecast: ForecastMade, ahead: Extrapolation, pace: Pace) -> bool:
    """Tell whether the wall is now much nearer or farther than was said, against the way there was to go."""
    if pace.now - forecast.m < _REPORTED_EVERY_S:
        return False
    way = max(1.0, forecast.ahead.at - forecast.x)
    return abs(ahead.at - forecast.ahead.at) > _MOVED_SHARE * way


def out_of_sight(forecast: ForecastMade, series: GaugeSeries, pace: Pace) -> bool:
    """Tell whether the growth of the forecast did not come."""
    now = float(pace.step) if series.by_step else pace.now
    passed = now - forecast.x
    expected = forecast.ahead.slope * passed
    free = series.gauge.limit - forecast.used
    late = [value for x, value in series.points if x >= forecast.x + passed / 2]
    if len(late) < 6 or passed < 3 or expected < 0.1 * free:
        return False
    risen = sorted(late)[len(late) // 2] - forecast.used
    return risen < 0.25 * 0.75 * expected


def words_of(gauge: Gauge, ahead: Extrapolation, by_step: bool, seconds: float, pace: Pace) -> str:
    """Say it in one sentence: how it grows and since when, which wall it meets, at which step and in what time."""
    if not by_step:
        per = f"{gauge.unit(ahead.slope)} per second"
        return f"{gauge.subject} grows {per}; {gauge.wall} {gauge.met} in about {duration(seconds)}"
    if ahead.by_epoch:
        per = f"{gauge.unit(ahead.by_epoch)} per epoch"
    else:
        per = f"{gauge.unit(ahead.slope)} per step since step {count(round(ahead.since))}"
    at = f"at about step {count(round(ahead.at))} ({count(round(ahead.earliest))} to {count(round(ahead.latest))})"
    soon = f", in {duration(seconds)}" if pace.per_step else ""
    return f"{gauge.subject} grows {per}; {gauge.wall} {gauge.met} {at}{soon}"
