"""A chart cut down to what a screen can show: of each column of pixels the first, the last and the extremes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace

from holter.figures.shape import Channel, Chart


def thin(chart: Chart, columns: int, begin: float | None = None, end: float | None = None) -> Chart:
    """The chart between two times, with one neighbour on each side, in at most so many columns."""
    times = chart.times
    first = 0 if begin is None else max(0, bisect_left(times, begin) - 1)
    after = len(times) if end is None else min(len(times), bisect_right(times, end) + 1)
    kept = _kept(chart, columns, first, after)
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
