"""The GPU itself failed: it fell off the bus, or its memory or its firmware did.

What it sees: the NVIDIA driver's Xid lines in the kernel log that stand for hardware (48, 61, 62, 64, 74, 79, 92, 94,
95, 119, 120, 140), uncorrectable ECC errors that rise while the run uses the card, the words of CUDA for a lost card,
and a driver that stops answering in the middle of the run.
Why it matters: no change of the script helps, and the next run on the same card ends the same way.
May be confused with: faults of the program's own, which the driver also logs (Xid 13, 31, 43, 45): a bad index, a
device-side assert; a driver that was restarted on purpose.
How sure: established by a hardware Xid or CUDA's own words at the end of a run that failed; supported by ECC counters,
or by an Xid in a run that went on; a hypothesis when the driver merely stopped answering.
Cure: the hardware: drain the card, reset or reseat it, look at power and heat; go on elsewhere from a checkpoint.
"""

from __future__ import annotations

import re

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import ended_at
from holter.diagnosis.ending.raised import culprit_of, message_of, raised_at_end
from holter.diagnosis.ending.tracebacks import last_line_with, printed_text
from holter.finding import Cure, Ending, Evidence, Finding, Grade
from holter.record.events.recorder import KernelLine, Missing
from holter.record.events.timeline import DeviceMemory, Gpu, Nvidia

CAUSE = "device-lost"

# NVIDIA's list of Xids; those left out are the program's own or say nothing by themselves.
XIDS = {
    48: "an uncorrectable memory error (double-bit ECC)",
    61: "a fault of the card's own controller",
    62: "a fault of the card's own controller",
    64: "memory rows that could not be replaced",
    74: "a fault of the link between cards (NVLink)",
    79: "the card has fallen off the bus",
    92: "very many corrected memory errors",
    94: "a contained memory error",
    95: "an uncontained memory error",
    119: "the card's firmware (GSP) no longer answers",
    120: "a fault of the card's firmware (GSP)",
    140: "an unrecovered memory error",
}
_LOST = re.compile(
    r"GPU is lost|fallen off the bus|uncorrectable ECC error|ECC_UNCORRECTABLE|CUDA_ERROR_DEVICE_UNAVAILABLE|"
    r"hardware stack error|NVLink error|NVML_ERROR_GPU_IS_LOST|hipErrorECCNotCorrectable"
)
_BEFORE_THE_END = 300.0


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the fault, the card, and how it is known."""
    end = ended_at(record)
    failed = ending.kind in ("exception", "crashed", "hung", "killed")
    raised = raised_at_end(record) if failed else None
    in_error = _LOST.search(message_of(raised))
    line = last_line_with(_LOST, printed_text(record)) if failed and not in_error else ""
    faults = [event for event in record.of(KernelLine) if event.xid in XIDS]
    rose = _ecc_rose(record)
    gone = _stopped_answering(record)
    evidence = [Evidence("kernel log", event.text[:300], event.t) for event in faults[-3:]]
    grade: Grade = "supported"
    if faults:
        last = faults[-1]
        near = failed and (end is None or last.m >= end - _BEFORE_THE_END)
        grade = "established" if near or in_error else "supported"
        where = f" of the GPU at {last.device}" if last.device else " of the GPU"
        claim = f"the driver reported {XIDS[last.xid or 0]}{where} (Xid {last.xid})"
    elif in_error or line:
        grade = "established" if in_error else "supported"
        claim = f'the GPU is lost: "{(in_error.group(0) if in_error else line)[:200]}"'
    elif rose:
        claim = f"GPU {rose[0]} met {rose[2] - rose[1]} uncorrectable memory errors during the run"
    elif gone and failed and _used(record):
        grade, claim = "hypothesis", f"the GPU's driver stopped answering during the run: {gone}"
    else:
        return None
    if rose:
        evidence.append(Evidence("ECC", f"GPU {rose[0]}: uncorrectable errors {rose[1]} → {rose[2]}"))
    if gone:
        evidence.append(Evidence("driver", gone))
    if raised is not None:
        evidence.append(Evidence("exception", raised.headline[:300], raised.when))
    culprit = culprit_of(raised) if in_error or faults else None
    cures = (
        Cure(
            "take this card out of use, go on from the last checkpoint on another", "nvidia-smi -q -d ECC,ROW_REMAPPER"
        ),
        Cure("then reset it (nvidia-smi --gpu-reset -i N) or the machine; check power, heat and the slot"),
    )
    return Finding(CAUSE, grade, claim, tuple(evidence), culprit, cures)


def _cards(record: RecordLike) -> list[Gpu]:
    return [row for _, reading in record.readings(Nvidia) for row in reading.rows]


def _used(record: RecordLike) -> bool:
    return any((row.tree or 0) > 0 for row in _cards(record)) or bool(record.of(DeviceMemory))


def _ecc_rose(record: RecordLike) -> tuple[int, int, int] | None:
    """Give the card, and its counter before and after, for one that the run used."""
    used = {row.index or 0 for row in _cards(record) if (row.tree or 0) > 0}
    first: dict[int, int] = {}
    found = None
    for row in _cards(record):
        index, counted = row.index or 0, row.ecc_uncorrected
        if counted is None or index not in used:
            continue
        before = first.setdefault(index, counted)
        if counted > before:
            found = (index, before, counted)
    return found


def _stopped_answering(record: RecordLike) -> str:
    seen = [m for m, _ in record.readings(Nvidia)]
    for event in record.of(Missing):
        if event.probe == "nvidia" and seen and event.m > seen[0]:
            return event.because[:200]
    return ""
