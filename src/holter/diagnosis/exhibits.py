"""The pictures and figures that a view sets beside a verdict, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from holter.diagnosis.examined import examined
from holter.diagnosis.exhaustion import exhaustion_of
from holter.diagnosis.exits import exit_of
from holter.diagnosis.fields import moment, number, whole
from holter.diagnosis.memory import MemoryCurve, device_curve, memory_curve
from holter.diagnosis.progress import lasted, progress_of
from holter.diagnosis.rule import RecordLike
from holter.finding import Verdict
from holter.units import count, size

_MEMORY_ENDINGS = ("oom-killed", "running")
_SPANS = 24


@dataclass(frozen=True)
class Chart:
    """One curve: its values evenly over time, and its ends in words."""

    label: str
    values: tuple[float, ...]
    low: str
    high: str
    limit: str = ""
    top: float | None = None


@dataclass(frozen=True)
class Exhibits:
    """What a view may show beside the verdict; None where it is not known."""

    lasted: float | None = None
    steps: int | None = None
    epochs: int | None = None
    peak_memory: float | None = None
    memory_limit: float | None = None
    charts: tuple[Chart, ...] = ()
    damage: tuple[str, ...] = ()


def exhibits(record: RecordLike, verdict: Verdict) -> Exhibits:
    """Gather the figures of a run, and the curves that bear on how it ended."""
    record = examined(record)
    memory, progress, left = memory_curve(record), progress_of(record), exit_of(record)
    charts = []
    ran_out = exhaustion_of(record, verdict.ending)
    if ran_out is not None and ran_out.curve is not None and not ran_out.on_device:
        memory = ran_out.curve
    elif memory is not None and left is not None and left.m is not None:
        memory = memory.until(left.m)
    by_memory = verdict.ending.kind in _MEMORY_ENDINGS or verdict.ending.signal == "SIGKILL"
    if memory is not None and (by_memory or ran_out is not None):
        charts.append(_memory_chart("run's memory", memory))
    device = device_curve(record) if ran_out is not None and ran_out.on_device else None
    if device is not None:
        charts.append(_memory_chart("device memory", device))
    pace = _pace(record, progress.pid) if verdict.ending.kind == "hung" else None
    if pace is not None:
        charts.append(pace)
    return Exhibits(
        lasted=lasted(record),
        steps=progress.step,
        epochs=progress.epoch,
        peak_memory=memory.peak if memory is not None else None,
        memory_limit=memory.limit if memory is not None else None,
        charts=tuple(charts),
        damage=tuple(text for text in record.damage if isinstance(text, str)),
    )


def _memory_chart(label: str, curve: MemoryCurve) -> Chart:
    values = resample(curve.points)
    limit = f"limit {size(curve.limit)}" if curve.limit else ""
    return Chart(label, values, size(values[0]), size(values[-1]), limit, curve.limit)


def _pace(record: RecordLike, pid: int | None) -> Chart | None:
    """Count the steps of each span of time, the silence at the end with them: a hang is a curve that falls to zero."""
    windows = [line for line in record.lines("steps") if whole(line, "pid") == pid and number(line, "n")]
    last = max((moment(line) for line in record.lines("sample")), default=0.0)
    if len(windows) < 4:
        return None
    begin = moment(windows[0])
    span = (max(last, moment(windows[-1])) - begin) / _SPANS
    if span <= 0:
        return None
    done = [0.0] * _SPANS
    for line in windows[1:]:
        # A window's steps lie between it and the one before; they are laid evenly over that time.
        end, took = moment(line), max(number(line, "sum") or 0.0, 1e-6)
        first, until = int((max(begin, end - took) - begin) / span), int((end - begin) / span)
        for at in range(max(0, first), min(until, _SPANS - 1) + 1):
            low, high = max(end - took, begin + at * span), min(end, begin + (at + 1) * span)
            done[at] += (number(line, "n") or 0.0) * max(0.0, high - low) / took
    values = tuple(n / span for n in done)
    usual = sorted(value for value in values if value > 0)
    if not usual:
        return None
    return Chart("steps per second", values, rate(usual[len(usual) // 2]), rate(values[-1]))


def rate(per_second: float) -> str:
    """A pace as people say it: no exponents, no digits that mean nothing."""
    if per_second >= 100:
        return count(round(per_second))
    return f"{per_second:.1f}" if per_second >= 0.05 or per_second == 0 else f"{per_second:.2g}"


def resample(points: tuple[tuple[float, float], ...], n: int = 24) -> tuple[float, ...]:
    """Give the highest value of each of n spans of time, the last known one where a span is empty."""
    begin, span = points[0][0], points[-1][0] - points[0][0]
    if span <= 0 or len(points) < 2:
        return (points[-1][1],)
    n = min(n, len(points))
    parts: list[list[float]] = [[] for _ in range(n)]
    for m, value in points:
        parts[min(n - 1, max(0, int(n * (m - begin) / span)))].append(value)
    found, last = [], points[0][1]
    for part in parts:
        last = max(part, default=last)
        found.append(last)
    return tuple(found)
