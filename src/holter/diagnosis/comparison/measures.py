"""What two runs came to, measure by measure, and whether the difference is more than their noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Literal

from holter.diagnosis.core.progress import progress_of, windows_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.memory import device_curve, memory_curve
from holter.diagnosis.slow.cpu_share import cpu_share_of
from holter.diagnosis.slow.step_times import BETWEEN, IN_STEP, anatomy_of
from holter.record.events.timeline import StepWindow

Unit = Literal["seconds", "rate", "bytes", "share", "number"]
# Two runs of the same program on the same machine differ by so much without a reason.
_NOISE = 0.10
_MEMORY_NOISE = 0.10
_MEMORY_NOISE_BYTES = 64e6
_CPU_NOISE = 0.15  # of the CPU time that was wanted
_FEWEST_WINDOWS = 5  # windows of steps that tell how much a pace varies by itself


@dataclass(frozen=True)
class Measure:
    """One figure of both runs, its middle half in each where it varies, and whether they differ beyond noise."""

    key: str
    label: str
    unit: Unit
    value: float
    against: float
    differs: bool
    spread: tuple[float, float] | None = None
    against_spread: tuple[float, float] | None = None

    @property
    def rise(self) -> float:
        return self.value - self.against


def measures_of(record: RecordLike, other: RecordLike) -> tuple[list[Measure], list[str]]:
    """Every measure that both records have, and the names of those that one of them lacks."""
    found, unknown = [], []
    for measure in (_pace, _per_sample, _cpu, _memory, _device):
        made = measure(record, other)
        if isinstance(made, Measure):
            found.append(made)
            if made.key == "step":
                found += _phases(record, other, made)
        elif made:
            unknown.append(made)
    return found, unknown


def _step_times(record: RecordLike) -> list[float]:
    """The seconds of a step in each window, the warm-up left out."""
    anatomy = anatomy_of(record)
    if anatomy is None:
        return []
    windows = [line for line in record.of(StepWindow) if line.pid == anatomy.pid and line.m > anatomy.begin]
    return [line.sum / line.n for line in windows if line.n and line.sum]


def _varying(key: str, label: str, unit: Unit, value: Sequence[float], against: Sequence[float]) -> Measure:
    """A figure that was read many times: it differs where the middle halves lie apart, by more than the noise."""
    one, other = median(value), median(against)
    spreads = [_middle_half(value), _middle_half(against)]
    far = abs(one - other) > _NOISE * min(one, other)
    if spreads[0] and spreads[1]:
        apart = spreads[0][0] > spreads[1][1] or spreads[0][1] < spreads[1][0]
    else:  # too few to know how much it varies: only what no noise does counts
        apart = max(one, other) > 1.5 * min(one, other)
    return Measure(key, label, unit, one, other, far and apart, spreads[0], spreads[1])


def _middle_half(times: Sequence[float]) -> tuple[float, float] | None:
    if len(times) < _FEWEST_WINDOWS:
        return None
    low, _, high = quantiles(times, n=4)
    return low, high


def _pace(record: RecordLike, other: RecordLike) -> Measure | str:
    value, against = _step_times(record), _step_times(other)
    if not value or not against:
        return "the seconds of a step: too few steps are known of " + ("this run" if not value else "the other run")
    return _varying("step", "a step", "seconds", value, against)


def _per_sample(record: RecordLike, other: RecordLike) -> Measure | str:
    """Where batches are of another size, a step is no measure of the pace."""
    one, two = batch_of(record), batch_of(other)
    if not one or not two or one == two:
        return ""
    value = [one / took for took in _step_times(record)]
    against = [two / took for took in _step_times(other)]
    return _varying("sample", "samples a second", "rate", value, against) if value and against else ""


def _phases(record: RecordLike, other: RecordLike, step: Measure) -> list[Measure]:
    """What a step's time goes to, and what lies between steps, laid on each of them."""
    one, two = anatomy_of(record), anatomy_of(other)
    if one is None or two is None:
        return []
    least = _NOISE * min(step.value, step.against)
    found = []
    for name in (*IN_STEP, *BETWEEN):
        value, against = one.of(name) / max(one.steps, 1), two.of(name) / max(two.steps, 1)
        if max(value, against) > 0.02 * max(step.value, step.against):
            differs = abs(value - against) > least and (step.differs or name in BETWEEN)
            found.append(Measure(f"phase.{name}", name, "seconds", value, against, differs))
    return found


def _cpu(record: RecordLike, other: RecordLike) -> Measure | str:
    """How much of the CPU time that its threads wanted each run had: less where others use the machine."""
    one, two = cpu_share_of(record), cpu_share_of(other)
    if one is None or two is None:
        return ""
    return Measure(
        "cpu", "CPU it got of what it wanted", "share", one.got, two.got, abs(one.got - two.got) > _CPU_NOISE
    )


def _memory(record: RecordLike, other: RecordLike) -> Measure | str:
    return _peak("memory", "peak memory", record, other, lambda one: c.peak if (c := memory_curve(one)) else None)


def _device(record: RecordLike, other: RecordLike) -> Measure | str:
    return _peak("device", "device peak", record, other, lambda one: c.peak if (c := device_curve(one)) else None)


def _peak(
    key: str, label: str, record: RecordLike, other: RecordLike, of: Callable[[RecordLike], float | None]
) -> Measure | str:
    value, against = of(record), of(other)
    if value is None or against is None:
        missing = value is not None or against is not None
        return f"{label}: only one of the runs has readings" if missing else ""
    most = max(_MEMORY_NOISE * min(value, against), _MEMORY_NOISE_BYTES)
    return Measure(key, label, "bytes", value, against, abs(value - against) > most)


def batch_of(record: RecordLike) -> int | None:
    """The samples of the usual batch, also of a run that was too short for a pace."""
    batches = [batch for line in windows_of(record) if (batch := line.batch)]
    return int(median(batches)) if batches else None


def steps_done(record: RecordLike) -> int:
    """How many steps a run came to."""
    return progress_of(record).step or 0
