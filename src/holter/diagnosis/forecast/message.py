"""What was foretold: when it has to be said again, when it is off the table, and its words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holter.diagnosis.forecast.extrapolate import Extrapolation
from holter.diagnosis.forecast.gauges import Gauge
from holter.diagnosis.forecast.pace import Pace
from holter.units import count, duration

if TYPE_CHECKING:
    from holter.diagnosis.forecast.series import GaugeSeries

_MOVED = 0.3
_AGAIN = 10.0  # seconds between two words on the same wall


@dataclass(frozen=True)
class ForecastMade:
    """A forecast that was said: at which step (or time) and moment, and what was used then."""

    ahead: Extrapolation
    x: float
    m: float
    used: float


def moved_far(foretold: ForecastMade, ahead: Extrapolation, course: Pace) -> bool:
    """Tell whether the wall is now much nearer or farther than was said, against the way there was to go."""
    if course.now - foretold.m < _AGAIN:
        return False
    way = max(1.0, foretold.ahead.at - foretold.x)
    return abs(ahead.at - foretold.ahead.at) > _MOVED * way


def out_of_sight(foretold: ForecastMade, track: GaugeSeries, course: Pace) -> bool:
    """Tell whether the growth that was foretold did not come."""
    now = float(course.step) if track.by_step else course.now
    passed = now - foretold.x
    expected = foretold.ahead.slope * passed
    room = track.gauge.limit - foretold.used
    late = [value for x, value in track.points if x >= foretold.x + passed / 2]
    if len(late) < 6 or passed < 3 or expected < 0.1 * room:
        return False
    risen = sorted(late)[len(late) // 2] - foretold.used
    return risen < 0.25 * 0.75 * expected


def words_of(gauge: Gauge, ahead: Extrapolation, by_step: bool, seconds: float, course: Pace) -> str:
    """Say it in one sentence: how it grows and since when, which wall it meets, at which step and in what time."""
    if not by_step:
        per = f"{gauge.unit(ahead.slope)} per second"
        return f"{gauge.subject} grows {per}; {gauge.wall} {gauge.met} in about {duration(seconds)}"
    if ahead.by_epoch:
        per = f"{gauge.unit(ahead.by_epoch)} per epoch"
    else:
        per = f"{gauge.unit(ahead.slope)} per step since step {count(round(ahead.since))}"
    at = f"at about step {count(round(ahead.at))} ({count(round(ahead.earliest))} to {count(round(ahead.latest))})"
    soon = f", in {duration(seconds)}" if course.per_step else ""
    return f"{gauge.subject} grows {per}; {gauge.wall} {gauge.met} {at}{soon}"
