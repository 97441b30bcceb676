"""What a chart is, before anyone draws it: its times, its channels, the limit that stands against them."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

Unit = Literal["bytes", "percent", "rate", "seconds", "number"]
Points = Iterable[tuple[float, float]]
Readings = Iterable[tuple[float, float | None]]


@dataclass(frozen=True)
class Channel:
    """One line of a chart; None where there was no reading at that time."""

    key: str
    label: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Ahead:
    """A forecast as it was told: from where memory stood to the limit, with the earliest and latest time."""

    since: float
    used: float
    limit: float
    when: float
    earliest: float
    latest: float


@dataclass(frozen=True)
class Nonfinite:
    """A time in which the value was NaN or infinite, and the step at which that began."""

    since: float
    until: float
    step: int


@dataclass(frozen=True)
class Chart:
    """Channels over the same times, in seconds since the run began."""

    key: str
    title: str
    unit: Unit
    times: tuple[float, ...]
    channels: tuple[Channel, ...]
    limit: float | None = None
    limit_label: str = ""
    stacked: bool = False
    ahead: tuple[Ahead, ...] = ()
    nonfinite: tuple[Nonfinite, ...] = ()

    def channel(self, key: str) -> Channel | None:
        return next((channel for channel in self.channels if channel.key == key), None)

    def as_json(self) -> dict[str, Any]:
        limit = {"value": short(self.limit), "label": self.limit_label} if self.limit else None
        return {
            "key": self.key,
            "title": self.title,
            "unit": self.unit,
            "times": [round(time, 2) for time in self.times],
            "channels": [
                {"key": one.key, "label": one.label, "values": [short(value) for value in one.values]}
                for one in self.channels
            ],
            "limit": limit,
            "stacked": self.stacked,
            "nonfinite": [{key: short(value) for key, value in vars(one).items()} for one in self.nonfinite],
            "ahead": [{key: short(value) for key, value in vars(one).items()} for one in self.ahead],
        }


def chart_of(
    key: str, title: str, unit: Unit, start: float, lines: Iterable[tuple[str, str, Readings]], **more: Any
) -> Chart | None:
    """Set lines that were read at different times on one axis; None where none of them has two readings."""
    named = [(name, label, dict(points)) for name, label, points in lines]
    named = [one for one in named if one[2]]
    times = sorted({m for _, _, points in named for m in points})
    if len(times) < 2:
        return None
    channels = tuple(Channel(name, label, tuple(points.get(m) for m in times)) for name, label, points in named)
    return Chart(key, title, unit, tuple(m - start for m in times), channels, **more)


def short(value: float | None) -> float | int | None:
    """A number with as many digits as any eye can use: six."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def thin(chart: Chart, columns: int, begin: float | None = None, end: float | None = None) -> Chart:
    """The chart between two times, with one neighbour on each side, in at most so many columns."""
    times = chart.times
    first = 0 if begin is None else max(0, bisect_left(times, begin) - 1)
    after = len(times) if end is None else min(len(times), bisect_right(times, end) + 1)
    # However short a time without a number was: the line breaks off there.
    breaks = [bisect_left(times, one.until - 1e-6) for one in chart.nonfinite]
    kept = sorted({*_kept(chart, columns, first, after), *(at for at in breaks if first <= at < after)})
    if len(kept) == len(times):
        return chart
    channels = tuple(Channel(one.key, one.label, tuple(one.values[at] for at in kept)) for one in chart.channels)
    return replace(chart, times=tuple(times[at] for at in kept), channels=channels)


def _kept(chart: Chart, columns: int, first: int, after: int) -> list[int]:
    # Two readings of a column are drawn as well as its four; below that nothing is gained.
    if after - first <= 2 * columns:
        return list(range(first, after))
    begin, width = chart.times[first], (chart.times[after - 1] - chart.times[first]) / columns
    kept: set[int] = {first, after - 1}
    at = first
    for column in range(columns):
        until = after if column == columns - 1 else bisect_right(chart.times, begin + (column + 1) * width, at, after)
        if until > at:
            kept |= {at, until - 1}
            for channel in chart.channels:
                known = [n for n in range(at, until) if channel.values[n] is not None]
                if known:
                    # First, last and extremes of each channel: a reading that is rare is not lost to others' times.
                    kept |= {known[0], known[-1], *_extremes(channel, known)}
        at = until
    return sorted(kept)


def _extremes(channel: Channel, known: list[int]) -> tuple[int, int]:
    values = channel.values
    return min(known, key=lambda n: values[n] or 0.0), max(known, key=lambda n: values[n] or 0.0)
