"""The figures and short curves that are set beside a verdict in text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from holter.diagnosis.core.examined import examined
from holter.diagnosis.core.progress import lasted, progress_of, windows_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.exhaustion import exhaustion_of
from holter.diagnosis.memory.memory import MemoryCurve, device_curve, unseen_peak
from holter.figures.charts import pace, shown_memory
from holter.finding import Verdict
from holter.record.events.agent import Made
from holter.record.events.recorder import ForecastTold
from holter.units import count, duration, rate, size

_MEMORY_ENDINGS = ("oom-killed", "running")
_RATE = re.compile(r"\bper (?:step|epoch)\b")
# Families that a curve says more about than words do.
_ABOUT_MEMORY = ("leak", "oversize", "thrash", "fragmentation")
_ABOUT_PACE = ("thrash", "input-bound", "overhead", "cpu", "recompile")
_SPANS = 24
_MOST_TOLD = 3


@dataclass(frozen=True)
class ShortChart:
    """One curve: its values evenly over time, and its ends in words."""

    label: str
    values: tuple[float, ...]
    low: str
    high: str
    limit: str = ""
    top: float | None = None


@dataclass(frozen=True)
class Figures:
    """What a view may show beside the verdict; None where it is not known."""

    lasted: float | None = None
    steps: int | None = None
    epochs: int | None = None
    peak_memory: float | None = None
    memory_limit: float | None = None
    charts: tuple[ShortChart, ...] = ()
    told: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()


def summary_of(record: RecordLike, verdict: Verdict) -> Figures:
    """Gather the figures of a run, and the curves that bear on how it ended."""
    record = examined(record)
    progress, memory = progress_of(record), shown_memory(record, verdict.ending)
    charts = []
    ran_out = exhaustion_of(record, verdict.ending)
    family = verdict.findings[0].family if verdict.findings else ""
    by_memory = verdict.ending.kind in _MEMORY_ENDINGS or verdict.ending.signal == "SIGKILL" or family in _ABOUT_MEMORY
    if memory is not None and (by_memory or ran_out is not None):
        charts.append(_memory_chart("run's memory", memory))
    device = device_curve(record) if ran_out is not None and ran_out.on_device else None
    if device is not None:
        charts.append(_memory_chart("device memory", device))
    if verdict.ending.kind == "hung":
        charts += _pace_chart(record)
    charts += _of_the_family(record, family)
    return Figures(
        lasted=lasted(record),
        steps=progress.step,
        epochs=progress.epoch,
        peak_memory=_peak(record, memory) if memory is not None else None,
        memory_limit=memory.limit if memory is not None else None,
        charts=tuple(charts),
        told=_told(record, verdict),
        damage=(
            *(said for said in record.damage if isinstance(said, str)),
            *(f"a rule could not be asked: {said}" for said in verdict.failed_rules),
        ),
    )


def peak_memory(record: RecordLike, verdict: Verdict) -> float | None:
    """Give the same peak for a list, without the curves."""
    record = examined(record)
    memory = shown_memory(record, verdict.ending)
    return _peak(record, memory) if memory is not None else None


def _peak(record: RecordLike, memory: MemoryCurve) -> float:
    """Give what a limit would have to be: the highest reading, and what was higher for a moment between two."""
    peak = memory.peak + max(0.0, unseen_peak(record))
    return min(peak, memory.limit) if memory.limit and memory.peak <= memory.limit else peak


def _told(record: RecordLike, verdict: Verdict) -> tuple[str, ...]:
    """Give what was forecast while the run was on, and when: the first, and the last ones where they differ.

    How fast memory grew was an estimate then. Where a finding has measured it over the whole run, only that is told.
    """
    begin = record.facts.mono
    measured = any(_RATE.search(finding.claim) for finding in verdict.findings)
    said = [
        f'{duration(event.m - begin)} in: "{_forecast_in(event.text) if measured else event.text}"'
        for event in record.of(ForecastTold)
        if begin is not None and event.m >= begin and event.text
    ]
    return tuple(said if len(said) <= _MOST_TOLD else [said[0], *said[1 - _MOST_TOLD :]])


def _forecast_in(text: str) -> str:
    rate, _, ahead = text.partition("; ")
    return ahead if ahead and _RATE.search(rate) else text


def _of_the_family(record: RecordLike, family: str) -> list[ShortChart]:
    """The curve that a finding of this family is about, where the steps have one."""
    steps = windows_of(record)
    if family in _ABOUT_PACE:
        taken = [(line.m, (line.sum or 0.0) / (line.n or 1.0)) for line in steps]
        return _chart("seconds per step", taken, lambda value: duration(value))
    if family == "nan":
        losses = [(line.m, last) for line in steps if (last := line.loss.last) is not None]
        return _chart("loss", losses, lambda value: f"{value:.3g}")
    if family == "leak":
        alive: dict[str, list[tuple[float, float]]] = {}
        for event in record.of(Made):
            if event.what == "model" and (event.alive or 0) > 0:
                place = f"{event.file}:{event.line}"
                alive.setdefault(place, []).append((event.m, event.alive or 0.0))
        most = max(alive.values(), key=lambda points: points[-1][1], default=[])
        if most and most[-1][1] >= 4:
            return _chart("live models", most, lambda value: count(round(value)))
    return []


def _chart(label: str, points: list[tuple[float, float]], words: Callable[[float], str]) -> list[ShortChart]:
    if len(points) < 4:
        return []
    values = _resample(tuple(points), _SPANS)
    return [ShortChart(label, values, words(values[0]), words(values[-1]))]


def _memory_chart(label: str, curve: MemoryCurve) -> ShortChart:
    values = _resample(curve.points, _SPANS)
    limit = f"limit {size(curve.limit)}" if curve.limit else ""
    return ShortChart(label, values, size(values[0]), size(values[-1]), limit, curve.limit)


def _pace_chart(record: RecordLike) -> list[ShortChart]:
    found = pace(record, _SPANS)
    values = found[2] if found is not None else ()
    usual = sorted(value for value in values if value > 0)
    return [ShortChart("steps per second", values, rate(usual[len(usual) // 2]), rate(values[-1]))] if usual else []


def _resample(points: tuple[tuple[float, float], ...], n: int) -> tuple[float, ...]:
    """Give the highest value of each of n spans of time, the last known one where a span is empty."""
    begin, span = points[0][0], points[-1][0] - points[0][0]
    if span <= 0 or len(points) < 2:
        return (points[-1][1],)
    n = min(n, len(points))
    parts: list[list[float]] = [[] for _ in range(n)]
    for m, value in points:
        parts[min(n - 1, max(0, int(n * (m - begin) / span)))].append(value)
    found, last = [], points[0][1]
    for values in parts:
        last = max(values, default=last)
        found.append(last)
    return tuple(found)
