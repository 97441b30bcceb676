"""What the steps of a run spent their time on, over all of the training and over its later part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.progress import progress_of
from holter.diagnosis.core.rule import RecordLike
from holter.finding import Evidence
from holter.record.events.timeline import StepWindow
from holter.units import duration, share

IN_STEP = ("data", "forward", "backward", "optimizer", "other")
BETWEEN = ("validation", "checkpoint", "compile")
# The first steps start workers, fill caches and compile: what they cost is paid once.
_WARM_STEPS = 2
_WARM_SECONDS = 1.0
_WINDOWS = 8
_SLOWER = 1.8


@dataclass(frozen=True)
class Anatomy:
    """Steps of one process between two moments: how many, how long, and by phase; seconds."""

    pid: int
    begin: float
    end: float
    steps: int
    stepping: float  # seconds within steps
    phases: dict[str, float]
    batch: int | None = None
    shortest: float | None = None  # what the quickest steps took: short ones are not all timed by phase
    at_first: float | None = None  # seconds per step, early and late
    at_last: float | None = None

    @property
    def training(self) -> float:
        """Give the seconds of training: the steps, and validation, checkpoints and compilation between them."""
        return self.stepping + sum(self.phases.get(name, 0.0) for name in BETWEEN)

    @property
    def per_step(self) -> float:
        return self.stepping / self.steps if self.steps else 0.0

    def of(self, name: str) -> float:
        """Give the seconds that went to a phase."""
        return self.phases.get(name, 0.0)

    @property
    def split(self) -> str:
        """Say the parts of a step, the largest first: 'data 78 %, backward 12 %'."""
        known = sorted(((self.of(name), name) for name in IN_STEP), reverse=True)
        return ", ".join(
            f"{name} {share(took / self.stepping)}" for took, name in known if took >= 0.02 * self.stepping
        )

    @property
    def slowed(self) -> bool:
        return bool(self.at_first and self.at_last and self.at_last >= _SLOWER * self.at_first)

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Give the split as proof, and how the pace changed where it did."""
        found = [Evidence("a step", f"{duration(self.per_step)}: {self.split}")] if self.stepping else []
        if self.slowed and self.at_first and self.at_last:
            found.append(
                Evidence("pace", f"steps took {duration(self.at_first)} at first, {duration(self.at_last)} at the end")
            )
        return tuple(found)


@once
def anatomy_of(record: RecordLike, *, late: bool = False) -> Anatomy | None:
    """Add up the step windows of the process that trained most, its first steps left out; `late`: the last half."""
    pid = progress_of(record).pid
    windows = [line for line in record.of(StepWindow) if line.pid == pid]
    if pid is None or not windows:
        return None
    settled = _settled(windows)
    if late and settled:
        middle = (settled[0].m + settled[-1].m) / 2
        settled = [line for line in settled if line.m > middle]
    if not settled:
        return None
    steps = sum(line.n or 0 for line in settled)
    stepping = sum(line.sum or 0.0 for line in settled)
    phases = {name: sum(line.phases[name] for line in settled) for name in (*IN_STEP, *BETWEEN)}
    begin = settled[0].m - (settled[0].sum or 0.0)
    batches = [batch for line in settled if (batch := line.batch)]
    quickest = [took for line in settled if (took := line.min)]
    shortest = median(quickest) if quickest else None
    first, last = _paces(settled)
    batch = int(median(batches)) if batches else None
    return Anatomy(pid, begin, settled[-1].m, steps, stepping, phases, batch, shortest, first, last)


def _settled(windows: Sequence[StepWindow]) -> list[StepWindow]:
    steps, took = 0, 0.0
    for at, line in enumerate(windows):
        if steps >= _WARM_STEPS and took >= _WARM_SECONDS:
            return list(windows[at:])
        steps += line.n or 0
        took += line.sum or 0.0
    return []


def _paces(windows: Sequence[StepWindow]) -> tuple[float | None, float | None]:
    known = [(line.sum or 0.0) / n for line in windows if (n := line.n)]
    if len(known) < _WINDOWS:
        return None, None
    fifth = max(3, len(known) // 5)
    return median(known[:fifth]), median(known[-fifth:])
