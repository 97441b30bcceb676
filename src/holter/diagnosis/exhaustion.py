"""Memory that ran out: the proof that it did, and the shape of the curve that led there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from holter.diagnosis.examined import once
from holter.diagnosis.exits import exit_of
from holter.diagnosis.frames import Frame
from holter.diagnosis.memory import MemoryCurve, Points, device_curve, memory_curve
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
        steady = _steady(curve.points) if curve is not None and progress.pid is None else None
        if steady is not None:
            return "leak", False, f"memory grew steadily by {size(steady)} over the run, {reached}"
        made = any(event.get("what") == "model" for event in record.events_of("made"))
        what = "model" if on_device or made else "data"
        return (
            what,
            bool(asked and curve and curve.limit and asked > curve.limit),
            f"{want}before the first step {reached}",
        )
    if steps <= FIRST_STEPS:
        when = f"in step {steps + 1}" if steps else "in the first step"
        return "batch", steps > 0 or bool(asked), f"{want}{when} {reached}"
    during = _during(curve, progress)
    rise = _steady(during)
    if rise is not None and curve is not None:
        each, near = rise / steps, curve.nearness >= 0.8 or on_device
        grew = f"memory grew steadily by {size(each)} per step since the first steps, {size(rise)} in all"
        return "leak", near and each > 0, f"{grew}; {reached}"
    flat = _flat(during, curve)
    if flat is not None:
        return (
            "spike",
            steps > 20,
            f"{want}memory had been steady at {size(flat)} for {count(steps)} steps, then {reached}",
        )
    if len(during) >= 8 and _grew(during):
        return "leak", False, f"{want}memory rose over {count(steps)} steps, unevenly, {reached}"
    return "spike", False, f"{want}after {count(steps)} good steps {reached}"


def _reached(curve: MemoryCurve | None) -> str:
    if curve is None:
        return "memory ran out (no readings of it were kept)"
    if not curve.limit:
        return f"it was last read at {size(curve.last)}"
    part = share(curve.peak / curve.limit)
    return f"it reached {size(curve.peak)}, {part} of {curve.limit_words} of {size(curve.limit)}"


def _during(curve: MemoryCurve | None, progress: Progress) -> Points:
    if curve is None or progress.first_step_m is None:
        return curve.points if curve is not None else ()
    begin, last = progress.first_step_m, curve.points[-1][0]
    # The first steps fill caches and allocate what is then reused: their growth is no leak.
    begin += 0.1 * max(0.0, last - begin)
    return tuple(point for point in curve.points if point[0] >= begin)


def _quarters(points: Points) -> list[float]:
    begin, span = points[0][0], points[-1][0] - points[0][0]
    parts: list[list[float]] = [[], [], [], []]
    for m, value in points:
        parts[min(3, int(4 * (m - begin) / span)) if span > 0 else 0].append(value)
    return [median(part) for part in parts if part]


def _steady(points: Sequence[tuple[float, float]]) -> float | None:
    """Give the rise of a curve that grows all along, or None for any other shape."""
    if len(points) < 8:
        return None
    middle = _quarters(tuple(points))
    low, high = points[0][1], max(value for _, value in points)
    if len(middle) < 4 or high <= 0 or high - low < 0.2 * high:
        return None
    rises = [b - a for a, b in pairwise(middle)]
    total = middle[-1] - middle[0]
    # Each third of the way carries its share: a jump or a plateau is something else.
    return high - low if total > 0 and all(0.15 * total < rise < 0.6 * total for rise in rises) else None


def _flat(points: Points, curve: MemoryCurve | None) -> float | None:
    """Give the level of a curve that was flat until its last moment."""
    if curve is None or len(points) < 8:
        return None
    body = [value for _, value in points[: max(6, int(len(points) * 0.9))]]
    level = median(body)
    spread = max(body) - min(body)
    # Without a limit to measure against, flat means flat against its own size.
    scale = max(level, (curve.limit or 0.0) - level)
    return level if spread < 0.15 * scale and level < 0.9 * (curve.limit or float("inf")) else None


def _grew(points: Points) -> bool:
    middle = _quarters(points)
    return len(middle) > 1 and middle[-1] > 1.2 * middle[0] and middle[-1] >= max(middle)
