"""Where a run stands at its last reading: its step, its phase, its memory, and what was last said of it."""

from __future__ import annotations

from typing import Any

from holter.diagnosis.core.progress import progress_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.memory import memory_curve
from holter.figures.shape import short
from holter.record.events.recorder import ForecastTold, Stall, StallOver
from holter.record.events.timeline import Sample
from holter.units import count, duration, size

_LONG = 2.0  # seconds from which it is worth saying how long a phase has been on


def now_of(record: RecordLike) -> dict[str, Any]:
    """Its step, its phase, its memory; of a run that has ended the most it held."""
    progress, memory = progress_of(record), memory_curve(record)
    planned = progress.planned if progress.step and (progress.planned or 0) >= progress.step else None
    held = (memory.late if record.live else memory.peak) if memory is not None else None
    return {
        "step": f"{count(progress.step)}{f' of {count(planned)}' if planned else ''}" if progress.step else "",
        "phase": progress.phase,
        "memory": size(held) if held is not None else "",
        "full": short(held / memory.limit) if held is not None and memory is not None and memory.limit else None,
    }


def phase_time(record: RecordLike) -> str:
    """How long the present phase has been on, where that is worth a word."""
    since = progress_of(record).phase_since
    last = max((line.m for line in record.of(Sample)), default=None)
    return duration(last - since) if since and last is not None and last - since >= _LONG else ""


def alarm_of(record: RecordLike) -> str:
    """What was last said of a run that is on, unless it is over: a hang, or what is to come."""
    told: list[Stall | StallOver | ForecastTold] = [*record.of(StallOver), *record.of(ForecastTold), *record.of(Stall)]
    last = max(told, key=lambda event: event.m, default=None)
    if isinstance(last, Stall):
        return f"no progress in {last.phase or 'an unknown phase'}"
    return last.text if isinstance(last, ForecastTold) and last.state in ("foreseen", "slower") else ""
