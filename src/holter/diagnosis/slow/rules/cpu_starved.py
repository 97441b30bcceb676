"""Other programs take the CPU.

What it sees: threads of the run that were ready to run and had no core for most of the time, by the kernel's own run
delay, while the run as a whole had much less than all cores, and its own threads are not too many for them.
Why it matters: a run that gets a fifth of what it wants takes five times as long, and nothing in it is wrong.
May be confused with: more threads of the run's own than cores (oversubscribed); a container's quota (throttled).
How sure: supported when the run had less than a quarter of the CPU time that it wanted over at least 15 s of training;
a hypothesis below half.
Cure: end or move the other programs, or give the run a better priority.
"""

from __future__ import annotations

from holter.diagnosis.core.evidence import latest
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.cpu_share import cpu_share_of
from holter.diagnosis.slow.step_times import anatomy_of
from holter.finding import Cure, Ending, Evidence, Finding, Grade
from holter.record.events.timeline import Load
from holter.units import duration, share

CAUSE = "cpu.starved"
YIELDS_TO = ("thrash", "cpu.oversubscribed", "cpu.throttled")

_OBSERVED = 15.0
_SURE, _PERHAPS = 0.25, 0.5
_ENOUGH_CORES_SHARE = 0.7  # of the cores: a run that has more than this of them is not starved by others
_WANTED = 0.6  # cores: a run that wants less than this has other troubles


def examine(record: RecordLike, ending: Ending) -> Finding | None:  # noqa: ARG001 - the shape of a rule
    """Say how much of the wanted CPU time the run had."""
    found, anatomy = cpu_share_of(record), anatomy_of(record)
    if found is None or anatomy is None or found.seconds < _OBSERVED or found.got >= _PERHAPS:
        return None
    wanted = min(found.had + found.waited, found.cores)
    if found.had > _ENOUGH_CORES_SHARE * found.cores or wanted < _WANTED or found.had > _ENOUGH_CORES_SHARE * wanted:
        return None
    grade: Grade = "supported" if found.got < _SURE else "hypothesis"
    claim = (
        f"other programs take the CPU: the run's threads were ready to run and had a core only {share(found.got)} of "
        f"that time, {found.had:.1f} of {found.cores:g} cores"
    )
    evidence = [
        Evidence(
            "run queue", f"{found.waited:.1f} threads waited for a core on average, over {duration(found.seconds)}"
        ),
        *anatomy.evidence,
    ]
    load = latest(record, Load, lambda reading: reading.load1 is not None).load1
    if load is not None:
        evidence.append(Evidence("machine's load", f"{load:.1f} on {found.cores:g} cores"))
    cures = (
        Cure("see what else runs, and end it or wait for it", "top -o %CPU"),
        Cure("give the run a better place in the queue", "sudo renice -n -5 -p PID"),
    )
    return Finding(CAUSE, grade, claim, tuple(evidence), None, cures)
