"""A run that is held back: by its container's CPU quota, or by a GPU that lowers its clocks.

What it sees: the container's throttled time growing for a large part of the training, or a GPU that reported heat or
power as the reason for lower clocks at most readings.
Why it matters: the machine looks idle, and the run still gets no more.
May be confused with: other programs that take the CPU; a run that waits for its data.
How sure: established when the kernel counted a third of the training as throttled and the run stood at its quota;
supported for a GPU; a quota that is hit now and then says nothing.
Cure: a larger quota, or as many threads as the quota has cores; cooling or a power limit for a GPU.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.cpu_share import cores_of, rise_of
from holter.diagnosis.slow.step_times import Anatomy, anatomy_of
from holter.finding import Cure, Ending, Evidence, Finding
from holter.record.events.timeline import Cgroup, Nvidia, Processes
from holter.units import duration, share

CAUSE = "cpu.throttled"
YIELDS_TO = ("thrash",)

_TRAINED = 8.0
_HELD_BACK = 0.33
_AT_QUOTA = 0.8
_READINGS = 10
# A power cap is how a card works at full load; these are not.
_HOT = ("thermal", "hardware-slowdown", "power-brake")


def examine(record: RecordLike, ending: Ending) -> Finding | None:  # noqa: ARG001 - the shape of a rule
    """Say for how long the run was held back, and by what."""
    anatomy = anatomy_of(record)
    if anatomy is None or anatomy.training < _TRAINED:
        return None
    return _by_quota(record, anatomy) or _by_heat(record, anatomy)


def _by_quota(record: RecordLike, anatomy: Anatomy) -> Finding | None:
    held, span = rise_of(record, Cgroup, lambda reading: reading.cpu_throttled_s, anatomy), anatomy.end - anatomy.begin
    used, cores = rise_of(record, Processes, lambda reading: reading.cpu_s, anatomy), cores_of(record)
    machine = record.facts.cpus
    if not held or span <= 0 or used is None or held < _HELD_BACK * span:
        return None
    if machine is None or cores >= machine or used < _AT_QUOTA * cores * span:
        return None
    claim = (
        f"the container's CPU quota of {cores:g} of {machine:g} cores held the run back for {duration(held)} "
        f"of {duration(span)} of training"
    )
    evidence = (
        Evidence("throttled", f"{duration(held)}, {share(min(1.0, held / span))} of the training"),
        Evidence("CPU used", f"{used / span:.2f} cores, the quota is {cores:g}"),
        *anatomy.evidence,
    )
    whole_cores = max(1, int(cores))
    cures = (
        Cure("give the container more CPU", "docker run --cpus=N, or resources.limits.cpu of the pod"),
        Cure(
            f"use no more threads than the quota has cores, so that they do not spend it at once: {whole_cores}",
            f"OMP_NUM_THREADS={whole_cores}",
            "equivalent",
        ),
    )
    return Finding(CAUSE, "established", claim, evidence, None, cures)


def _by_heat(record: RecordLike, anatomy: Anatomy) -> Finding | None:
    readings = [r for m, r in record.readings(Nvidia) if anatomy.begin <= m <= anatomy.end]
    hot = []
    for reading in readings:
        for row in reading.rows:
            if row.tree and any(name in word for word in row.throttle for name in _HOT):
                hot.append((row.name, row.throttle[0]))
                break
    if len(readings) < _READINGS or len(hot) < 0.6 * len(readings):
        return None
    name, word = hot[-1]
    claim = f"{name or 'the GPU'} lowered its clocks ({word}) at {share(len(hot) / len(readings))} of the readings"
    cures = (Cure("see to its cooling and power supply", "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER"),)
    return Finding(CAUSE, "supported", claim, anatomy.evidence, None, cures)
