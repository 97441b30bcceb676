"""Someone or something else ended the run with a signal.

What it sees: a run ended by SIGTERM, SIGKILL, SIGQUIT or the like, who sent it where Holter was the addressee,
and the memory at that time.
Why it matters: "Killed" is taken for lack of memory; a colleague, a script or a scheduler does it as well.
May be confused with: an OOM kill, which has the kernel's counters to show for it; a time limit; a hang-up.
How sure: established with a known sender; supported for a SIGKILL while the kernel's counters stood still and
memory was far from its limit; else a hypothesis.
Cure: ask the sender; catch SIGTERM and write a checkpoint.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import exit_of, sent_signal
from holter.diagnosis.memory.memory import memory_curve
from holter.finding import Cure, Ending, Evidence, Finding, Grade
from holter.record.events.timeline import Cgroup, VirtualMemory
from holter.units import share

CAUSE = "external.signal"
YIELDS_TO = ("external.time-limit", "external.hangup", "oversize", "leak")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the signal, its sender where known, and what speaks against memory."""
    exited = exit_of(record)
    if ending.kind != "killed" or exited is None:
        return None
    sent = sent_signal(record, exited)
    name = exited.signal or (sent.name if sent else "a signal")
    if name == "SIGHUP":
        return None
    evidence = [Evidence("signal", name, exited.t)]
    curve = memory_curve(record)
    if sent is not None and sent.who:
        grade: Grade = "established"
        claim = f"{name} was sent by {sent.who}"
        evidence.append(Evidence("sender", sent.who, sent.when))
    else:
        counted = any(reading.oom_kill is not None for _, reading in record.readings(Cgroup))
        counted = counted or any(reading.oom_kill is not None for _, reading in record.readings(VirtualMemory))
        far = curve is not None and bool(curve.limit) and curve.nearness < 0.8
        grade = "supported" if name != "SIGKILL" or (counted and far) else "hypothesis"
        claim = f"{name} was sent by a person or a program; which one could not be seen"
    if name == "SIGKILL" and curve is not None:
        stood = f"memory stood at {share(curve.nearness)} of its limit, and " if curve.limit else ""
        claim += f"; {stood}the kernel counted no OOM kill in this run"
        evidence.append(Evidence("memory", curve.standing))
    # SIGKILL can't be caught: what was not saved before it is lost.
    save = "write checkpoints as it goes" if name == "SIGKILL" else f"catch {name} and write a checkpoint"
    ask = "ask who may end processes here (a scheduler, a watchdog, earlyoom, systemd-oomd)"
    # With a known sender there is nobody to look for.
    cures = (
        Cure(f"{'' if sent is not None and sent.who else ask + '; '}{save}, so that the next run goes on from it"),
    )
    return Finding(CAUSE, grade, claim, tuple(evidence), None, cures)
