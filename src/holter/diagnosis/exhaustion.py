"""Memory that ran out: the proof that it did, and the shape of the curve that led there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holter.diagnosis.examined import once
from holter.diagnosis.exits import exit_of
from holter.diagnosis.frames import Frame
from holter.diagnosis.growth import Growth, by_step, growth_of, steady_rise
from holter.diagnosis.memory import MemoryCurve, device_curve, memory_curve, process_curve
from holter.diagnosis.memory_looks import filled_by, memory_looks
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
# Where a framework makes layers, and where it updates them.
_MODEL = re.compile(r"/torch/nn/|/keras/(?:src/)?(?:layers|models|initializers)/|/transformers/(?:modeling|models/)")
_UPDATE = re.compile(r"/torch/optim/|/keras/(?:src/)?optimizers/")
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
    in_worker: bool = False


@once
def exhaustion_of(record: RecordLike, ending: Ending) -> Exhaustion | None:
    """Say whether memory ran out, and how the curve looked; None when there is no sign of it."""
    left = exit_of(record)
    kill = oom_kill_of(record, left) if left is not None or record.live else None
    raised = raised_in(record, left.m if left else None) if ending.kind in ("exception", "oom-killed") else None
    said = message_of(raised)
    on_device = bool(_ON_DEVICE.search(said))
    refused = on_device or bool(_ON_HOST.search(said))
    if kill is not None and ending.kind != "oom-killed" and kill.role != "trainer":
        kill = None  # the run outlived it: a helper's want of memory is not the run's
    curve = device_curve(record) if on_device else memory_curve(record)
    suspected = False
    if kill is None and not refused:
        # A kill with nothing to prove it, at the edge of the limit: worth a guess, and told as one.
        suspected = ending.kind == "killed" and ending.signal in ("SIGKILL", None) and curve is not None
        if not suspected or curve is None or curve.nearness < 0.95:
            return None
    progress, asked = progress_of(record), _asked(said)
    if kill is not None and curve is not None and not on_device:
        curve = curve.until(kill.at)
    shape, clear, words = shape_of(record, curve, progress, asked, on_device)
    if kill is not None and kill.role == "worker":
        # The trainer's steps set the pace, but it is the worker's own memory that grew.
        own = process_curve(record, kill.pid, curve)
        shape, clear, words = shape_of(record, own.until(kill.at) if own else None, progress, asked, False)
        words = f"{kill.who}: {words}"
    evidence = list(oom_evidence(record, kill)) if kill is not None else []
    if raised is not None and refused:
        evidence.append(Evidence("exception", raised.headline, raised.when))
    if kill is None and curve is not None and not on_device:
        evidence.append(Evidence("memory", curve.standing))
        evidence.extend(tree_evidence(record, left.m if left else None))
    grade: Grade = "supported" if clear and not suspected else "hypothesis"
    frame = culprit_frame(raised) if raised is not None and refused else None
    if frame is None and shape != "leak":
        # A kill leaves no traceback; the stacks that were taken while memory shot up do.
        frame = filled_by(record, kill.pid if kill is not None else None)
    in_worker = kill is not None and kill.role == "worker"
    return Exhaustion(shape, grade, words, curve, on_device, tuple(evidence), frame, progress, in_worker)


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
    reached = _reached(curve, asked)
    want = f"one allocation asked for {size(asked)}; " if asked else ""
    in_step = progress.phase in ("forward", "backward", "optimizer")
    if steps == 0 and not in_step:
        return _before_the_first_step(record, curve, want, asked, on_device)
    if steps == 0 and _made_in(record, _UPDATE):
        # Forward and backward were done: it is the optimizer's own state that there was no room for.
        return "model", True, f"{want}in the optimizer's first update {reached}"
    if steps <= FIRST_STEPS:
        when = f"in step {steps + 1}" if steps else "in the first step"
        return "batch", steps > 0 or bool(asked) or _rose_in_step(curve, progress), f"{want}{when} {reached}"
    points = by_step(record, curve.points, progress) if curve is not None else ()
    found = growth_of(points, steps, curve.limit if curve is not None else None)
    return _over_the_steps(found, steps, reached, want)


def _over_the_steps(found: Growth, steps: int, reached: str, want: str) -> tuple[str, bool, str]:
    if found.shape == "steady":
        rate = f"memory grew steadily by {size(found.per_step)} per step, {size(found.rise)} in {count(steps)} steps"
        return "leak", True, f"{rate}, until {reached}"
    if found.shape == "flat":
        then = f"; {reached}" if want else f", then {reached}"
        held = f"memory had been steady at {size(found.level)} for {count(steps)} steps{then}"
        return "spike", steps > 20 and found.readings >= 3, f"{want}{held}"
    if found.shape == "uneven":
        grown = f"memory rose by {size(found.rise)} over {count(steps)} steps, unevenly, until {reached}"
        return "leak", False, f"{want}{grown}"
    if found.readings < 2:
        # Many steps in the moment between two readings: nothing is known but that it was over at once.
        return "batch", False, f"{want}in step {steps + 1} {reached}"
    return "spike", False, f"{want}after {count(steps)} good steps {reached}"


def _before_the_first_step(
    record: RecordLike, curve: MemoryCurve | None, want: str, asked: float | None, on_device: bool
) -> tuple[str, bool, str]:
    # Without an adapter there may well be steps that nobody saw.
    seen = any(event.get("state") == "on" for event in record.events_of("adapter"))
    steady = steady_rise(curve) if curve is not None and not seen else None
    if steady is not None:
        return "leak", False, f"memory grew steadily by {size(steady)} over the run, until {_reached(curve)}"
    looks = memory_looks(record)
    if looks:
        model = _made_in(record, _MODEL)
    else:
        model = any(event.get("what") == "model" for event in record.events_of("made"))
    larger = bool(asked and curve and curve.limit and asked > curve.limit)
    # Looks all along a climb that began low: what filled it is seen, not guessed.
    climbed = len(looks) >= 3 and looks[0].used < 0.7 * looks[-1].used
    shape = "model" if on_device or model else "data"
    return shape, larger or climbed, f"{want}before the first step {_reached(curve)}"


def _made_in(record: RecordLike, where: re.Pattern[str]) -> bool:
    """Tell whether memory shot up inside this part of a framework, by the most of the looks."""
    looks = memory_looks(record)[-8:]
    inside = [look for look in looks if any(where.search(frame.file.replace("\\", "/")) for frame in look.frames)]
    return len(inside) > len(looks) / 2


def _rose_in_step(curve: MemoryCurve | None, progress: Progress) -> bool:
    """Tell whether most of the memory came within the phase of the step that the run died in."""
    if curve is None or progress.phase_since is None:
        return False
    before = [value for m, value in curve.points if m <= progress.phase_since]
    return bool(before) and before[-1] < 0.6 * curve.peak


def _reached(curve: MemoryCurve | None, asked: float | None = None) -> str:
    if curve is None:
        return "memory ran out (no readings of it were kept)"
    if not curve.limit:
        return f"it was last read at {size(curve.last)}"
    if asked and curve.peak < 0.9 * curve.limit:
        # What was refused never became memory of the run's.
        return f"it stood at {size(curve.late)}, {curve.limit_words} is {size(curve.limit)}"
    part = share(curve.peak / curve.limit)
    return f"it reached {size(curve.peak)}, {part} of {curve.limit_words} of {size(curve.limit)}"
