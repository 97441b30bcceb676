"""Where a run stands at its last reading, what was last said of it, and the numbers at the head of every view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holter.diagnosis.core.examined import Examined
from holter.diagnosis.core.progress import last_sample, progress_of, windows_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.memory import device_curve, memory_curve
from holter.figures.shape import short
from holter.figures.summary import Figures
from holter.record.events.recorder import ForecastTold, Stall, StallOver
from holter.units import count, duration, rate, size

_LONG_PHASE_S = 2.0  # seconds from which it is worth saying how long a phase has been on


def now_of(record: RecordLike) -> dict[str, Any]:
    """Its step, its phase, its memory; of a run that has ended the most it held."""
    progress, memory = progress_of(record), memory_curve(record)
    planned = progress.planned if progress.step and (progress.planned or 0) >= progress.step else None
    held = (memory.late if record.live else memory.peak) if memory is not None else None
    return {
        "step": f"{count(progress.step)}{f' of {count(planned)}' if planned else ''}" if progress.step else "",
        "phase": progress.phase,
        "memory": size(held) if held is not None else "",
        "done": progress.step,
        "bytes": held,
        "full": short(held / memory.limit) if held is not None and memory is not None and memory.limit else None,
    }


def phase_time(record: RecordLike) -> str:
    """How long the present phase has been on, where that is worth a word."""
    since = progress_of(record).phase_since
    last = last_sample(record)
    return duration(last - since) if since and last is not None and last - since >= _LONG_PHASE_S else ""


def alarm_of(record: RecordLike) -> str:
    """What was last said of a run that is on, unless it is over: a hang, or what is to come."""
    events: list[Stall | StallOver | ForecastTold] = [
        *record.of(StallOver),
        *record.of(ForecastTold),
        *record.of(Stall),
    ]
    last = max(events, key=lambda event: event.m, default=None)
    if isinstance(last, Stall):
        return f"no progress in {last.phase or 'an unknown phase'}"
    return last.text if isinstance(last, ForecastTold) and last.state in ("foreseen", "slower") else ""


@dataclass(frozen=True)
class Figure:
    """One number with its name, and what it is a part of."""

    key: str
    label: str
    value: str
    of: str = ""


def figures_of(record: Examined, shown: Figures) -> list[Figure]:
    """The figures that are known; one that is not known is left out."""
    found = []
    if shown.lasted is not None:
        found.append(Figure("lasted", "lasted", duration(shown.lasted)))
    progress, windows = progress_of(record), windows_of(record)
    if shown.steps:
        of_plan = progress.planned and progress.planned >= shown.steps
        found.append(Figure("steps", "steps", count(shown.steps), count(progress.planned or 0) if of_plan else ""))
    if shown.epochs:
        of_plan = progress.epochs and progress.epochs >= shown.epochs
        found.append(Figure("epochs", "epochs", count(shown.epochs), count(progress.epochs or 0) if of_plan else ""))
    times = sorted((line.sum or 0.0) / (line.n or 1.0) for line in windows)
    if times and times[len(times) // 2] > 0:
        usual = times[len(times) // 2]
        found.append(Figure("step", "usual step", duration(usual), f"{rate(1 / usual)} a second"))
    losses = [loss for line in windows if (loss := line.loss.last) is not None]
    told = [line for line in windows if line.loss.last is not None or line.bad_loss is not None]
    if told and told[-1].loss.last is None:
        number = f"before that {losses[-1]:.4g}" if losses else ""
        found.append(Figure("loss", "last loss", "NaN or Inf", number))
    elif losses:
        found.append(Figure("loss", "last loss", f"{losses[-1]:.4g}"))
    if shown.peak_memory:
        of = size(shown.memory_limit) if shown.memory_limit else ""
        found.append(Figure("memory", "peak memory", size(shown.peak_memory), of))
    device = device_curve(record)
    if device is not None:
        found.append(Figure("device", "device peak", size(device.peak), size(device.limit) if device.limit else ""))
    return found
