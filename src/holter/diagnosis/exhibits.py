"""The pictures and figures that a view sets beside a verdict, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from holter.diagnosis.examined import examined
from holter.diagnosis.exhaustion import exhaustion_of
from holter.diagnosis.fields import moment, number, whole
from holter.diagnosis.memory import MemoryCurve, device_curve, memory_curve
from holter.diagnosis.progress import lasted, progress_of
from holter.diagnosis.rule import RecordLike
from holter.finding import Verdict
from holter.units import size

_MEMORY_ENDINGS = ("oom-killed", "killed", "running")


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
    memory, progress = memory_curve(record), progress_of(record)
    charts = []
    ran_out = exhaustion_of(record, verdict.ending)
    if memory is not None and (verdict.ending.kind in _MEMORY_ENDINGS or ran_out is not None):
        charts.append(_memory_chart("run's memory", memory))
    device = device_curve(record) if ran_out is not None and ran_out.on_device else None
    if device is not None:
        charts.append(_memory_chart("device memory", device))
    pace = _pace(record, progress.pid)
    if pace is not None and verdict.ending.kind in ("hung", *_MEMORY_ENDINGS):
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
    points = []
    for line in record.lines("steps"):
        n, total = number(line, "n"), number(line, "sum")
        if whole(line, "pid") == pid and n and total and total > 0:
            points.append((moment(line), n / total))
    if len(points) < 4:
        return None
    values = resample(tuple(points))
    return Chart("steps per second", values, f"{values[0]:.3g}", f"{values[-1]:.3g}")


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
