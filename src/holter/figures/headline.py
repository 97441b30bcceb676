"""A run's figures in words: the numbers that stand at the head of every view."""

from __future__ import annotations

from dataclasses import dataclass

from holter.diagnosis.core.examined import Examined
from holter.diagnosis.core.figures import Figures
from holter.diagnosis.core.progress import progress_of
from holter.diagnosis.memory.memory import device_curve
from holter.figures.training import windows_of
from holter.units import count, duration, rate, size


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
        whole = progress.planned and progress.planned >= shown.steps
        found.append(Figure("steps", "steps", count(shown.steps), count(progress.planned or 0) if whole else ""))
    if shown.epochs:
        whole = progress.epochs and progress.epochs >= shown.epochs
        found.append(Figure("epochs", "epochs", count(shown.epochs), count(progress.epochs or 0) if whole else ""))
    times = sorted((line.sum or 0.0) / (line.n or 1.0) for line in windows)
    if times and times[len(times) // 2] > 0:
        usual = times[len(times) // 2]
        found.append(Figure("step", "usual step", duration(usual), f"{rate(1 / usual)} a second"))
    losses = [loss for line in windows if (loss := line.loss.last) is not None]
    if losses:
        found.append(Figure("loss", "last loss", f"{losses[-1]:.4g}"))
    if shown.peak_memory:
        of = size(shown.memory_limit) if shown.memory_limit else ""
        found.append(Figure("memory", "peak memory", size(shown.peak_memory), of))
    device = device_curve(record)
    if device is not None:
        found.append(Figure("device", "device peak", size(device.peak), size(device.limit) if device.limit else ""))
    return found
