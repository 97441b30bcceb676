"""Memory that ran out: the proof that it did, and the shape of the curve that led there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holter.diagnosis.examined import once
from holter.diagnosis.exits import exit_of
from holter.diagnosis.frames import Frame
from holter.diagnosis.growth import during_steps, flat_level, grew, steady_rise
from holter.diagnosis.memory import MemoryCurve, device_curve, memory_curve
from holter.diagnosis.oom import oom_evidence, oom_kill_of, tree_evidence
from holter.diagnosis.progress import Progress, progress_of
from holter.diagnosis.raised import culprit_frame, message_of, raised_in
from holter.diagnosis.rule import RecordLike
from holter.finding import Ending, Evidence, Grade
from holter.units import count, share, size

_ON_DEVICE = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|HIP out of memory|MPS backend out of memory|OutOfMemoryError|"
    r"XPU out of memory|ResourceExhaustedError.{0,300}?(?:GPU|gpu|on device|OOM)|RESOURCE_EXHAUSTED",
    re.DOTALL,
)
_ON_HOST = re.compile(
    r"^(?:\w+\.)*_?(?:Array)?MemoryError\b|Cannot allocate memory|DefaultCPUAllocator: (?:can't|not enough)|"
    r"std::bad_alloc|Unable to allocate [\d.]+ [KMGT]iB|ResourceExhaustedError",
    re.MULTILINE,
)
_ASKED = re.compile(r"(?:[Tt]ried to allocate|Unable to allocate) ([\d.]{1,20}) (bytes|[KMGTP]i?B)")
_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}

# Up to this many steps a run has not yet shown that its ordinary step fits.
FIRST_STEPS = 5


@dataclass(frozen=True)
class Exhaustion:
    """Memory ran out (or, for a `hypothesis`, may have): where, on which curve, and its shape."""

    shape: str
    grade: Grade
    words: str
    curve: MemoryCurve | None
    on_device: bool
    evidence: tuple[Evidence, ...]
    frame: Frame | None
    progress: Progress


@once
def exhaustion_of(record: RecordLike, ending: Ending) -> Exhaustion | None:
    """Say whether memory ran out, and how the curve looked; None when there is no sign of it."""
    left = exit_of(record)
    kill = oom_kill_of(record, left) if left is not None or record.live else None
    raised = raised_in(record, left.m if left else None) if ending.kind in ("exception", "oom-killed") else None
    said = message_of(raised)
    on_device = bool(_ON_DEVICE.search(said))
    refused = on_device or bool(_ON_HOST.search(said))
    curve = device_curve(record) if on_device else memory_curve(record)
    suspected = False
    if kill is None and not refused:
        # A kill with nothing to prove it, at the edge of the limit: worth a guess, and told as one.
        suspected = ending.kind == "killed" and ending.signal in ("SIGKILL", None) and curve is not None
        if not suspected or curve is None or curve.nearness < 0.95:
            return None
    progress, asked = progress_of(record), _asked(said)
    shape, clear, words = shape_of(record, curve, progress, asked, on_device)
    evidence = list(oom_evidence(record, kill)) if kill is not None else []
    if raised is not None and refused:
        evidence.append(Evidence("exception", raised.headline, raised.when))
    if kill is None and curve is not None and not on_device:
        evidence.append(Evidence("memory", curve.standing))
        evidence.extend(tree_evidence(record, left.m if left else None))
    if kill is not None and kill.role == "worker":
        # The curve is the whole tree's: what it says of the trainer's steps need not hold for a worker.
        clear, words = False, f"the kernel killed {kill.who}; {words}"
    grade: Grade = "supported" if clear and not suspected else "hypothesis"
    frame = culprit_frame(raised) if raised is not None and refused else None
    return Exhaustion(shape, grade, words, curve, on_device, tuple(evidence), frame, progress)


def _asked(said: str) -> float | None:
    match = _ASKED.search(said)
    try:
        return float(match[1]) * _UNITS[match[2][0].lower()] if match else None
    except ValueError:
        return None


def shape_of(
    record: RecordLike, curve: MemoryCurve | None, progress: Progress, asked: float | None, on_device: bool
) -> tuple[str, bool, str]:
    """Name the shape of a curve that ended in want of memory, whether it is clear, and say it with numbers."""
    steps = progress.step or 0
    reached = _reached(curve)
    want = f"one allocation asked for {size(asked)}; " if asked else ""
    if steps == 0 and progress.phase not in ("forward", "backward", "optimizer"):
        # Without an adapter there may well be steps that nobody saw.
        seen = any(event.get("state") == "on" for event in record.events_of("adapter"))
        steady = steady_rise(curve.points) if curve is not None and not seen else None
        if steady is not None:
            return "leak", False, f"memory grew steadily by {size(steady)} over the run, {reached}"
        made = any(event.get("what") == "model" for event in record.events_of("made"))
        what = "model" if on_device or made else "data"
        return (
            what,
            bool(asked and curve and curve.limit and asked > curve.limit),
            f"{want}before the first step {reached}",
        )
    during = during_steps(curve, progress)
    if steps <= FIRST_STEPS or 0 < len(during) < 3:
        when = f"in step {steps + 1}" if steps else "in the first step"
        return "batch", steps <= FIRST_STEPS and (steps > 0 or bool(asked)), f"{want}{when} {reached}"
    rise = steady_rise(during)
    if rise is not None and curve is not None:
        each, near = rise / steps, curve.nearness >= 0.8 or on_device
        rate = f"memory grew steadily by {size(each)} per step since the first steps, {size(rise)} in all"
        return "leak", near and each > 0, f"{rate}; {reached}"
    flat = flat_level(during, curve)
    if flat is not None:
        return (
            "spike",
            steps > 20,
            f"{want}memory had been steady at {size(flat)} for {count(steps)} steps, then {reached}",
        )
    if len(during) >= 8 and grew(during):
        return "leak", False, f"{want}memory rose over {count(steps)} steps, unevenly, {reached}"
    return "spike", False, f"{want}after {count(steps)} good steps {reached}"


def _reached(curve: MemoryCurve | None) -> str:
    if curve is None:
        return "memory ran out (no readings of it were kept)"
    if not curve.limit:
        return f"it was last read at {size(curve.last)}"
    part = share(curve.peak / curve.limit)
    return f"it reached {size(curve.peak)}, {part} of {curve.limit_words} of {size(curve.limit)}"
