"""A device whose queue does not come back.

What it sees: a hung run that waits in a synchronise, in a Metal command buffer, or in reading a result back (.item(),
.cpu()).
Why it matters: the call that waits is not the one that failed: the kernel before it, or the device itself, is.
May be confused with: one very long kernel, with the device busy; a collective, which waits in the device as well.
How sure: established when the frames are a synchronise and nothing moves; a hypothesis from the code on the line.
Cure: run with CUDA_LAUNCH_BLOCKING=1 to see the kernel; check the driver's log; on Metal, leave it more memory.
"""

from __future__ import annotations

from holter.diagnosis.core.evidence import on_macos
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.hang.blocking import blocked_in
from holter.diagnosis.memory.unified import pressure_evidence
from holter.finding import Cure, Ending, Finding

CAUSE = "hang.device"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the wait for the device and the line that it is on."""
    found = blocked_in(record, ending)
    if found is None or found.detail != "device":
        return None
    if on_macos(record):
        metal = Cure(
            "torch.mps.synchronize() after each part of the step, for one run: the one that waits is the cause"
        )
        room = Cure("a smaller batch: Metal waits for memory that the system can't give", "", "equivalent")
        evidence = (*found.evidence, *pressure_evidence(record))
        return Finding(CAUSE, found.grade, found.claim, evidence, found.culprit, (metal, room))
    cures = (
        Cure("run once with CUDA_LAUNCH_BLOCKING=1: the line that then waits is the cause", "", "exact"),
        Cure("see the driver's log (dmesg, nvidia-smi -q) for Xid errors", "", "exact"),
    )
    return Finding(CAUSE, found.grade, found.claim, found.evidence, found.culprit, cures)
