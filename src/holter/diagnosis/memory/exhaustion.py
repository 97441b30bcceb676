"""Memory that ran out: the proof that it did, and the shape of the curve that led there."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from holter.diagnosis.core.epochs import epochs_of
from holter.diagnosis.core.evidence import frameworks_on
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import Frame
from holter.diagnosis.core.progress import Progress, progress_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import ended_at, exit_of
from holter.diagnosis.ending.oom_killer import NEAR, OomKill, oom_evidence, oom_kill_of, tree_evidence
from holter.diagnosis.ending.raised import culprit_frame, message_of, raised_at_end
from holter.diagnosis.ending.tracebacks import Raised
from holter.diagnosis.leak.growth import (
    Growth,
    by_step,
    growth_by_epoch,
    growth_of,
    growth_within_step,
    later_growth,
    steady_rise,
)
from holter.diagnosis.memory.large_batch import large_batch_of
from holter.diagnosis.memory.loader_memory import Waiting, filled_by_workers, sent_to_workers, waiting_batches
from holter.diagnosis.memory.memory import MemoryCurve, device_curve, memory_curve, own_device_curve, process_curve
from holter.diagnosis.memory.memory_looks import filled_by, gathered_by, grown_in_a_loop, memory_looks
from holter.diagnosis.memory.pool import first_size
from holter.diagnosis.memory.worker_pages import WorkerPages, copied_pages, taken_by_workers
from holter.finding import Culprit, Ending, Evidence, Grade
from holter.record.events.agent import Batch, Made
from holter.units import count, duration, share, size

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
# What oneDNN says when it gets no pages for its code; elsewhere it may mean something else.
_AT_OUR_LIMIT = re.compile(r"could not (?:create|execute) a primitive\b(?! descriptor)")
# Where a framework updates the weights, runs a model, and makes one: the first that fits a stack counts.
_ACTIVITIES = (
    ("update", re.compile(r"/torch/optim/\w+\.py step$|/keras/(?:src/)?optimizers/")),
    (
        "step",
        re.compile(
            r"/torch/nn/modules/module\.py (?:_call_impl|_wrapped_call_impl|__call__)$|"
            r"/torch/(?:_tensor|autograd/\w+|nn/functional)\.py |"
            r"/keras/(?:src/)?(?:backend/\w+/)?trainer\.py |/polymorphic_function\.py |/backprop\.py "
        ),
    ),
    (
        "model",
        re.compile(r"/torch/nn/|/keras/(?:src/)?(?:layers|models|initializers)/|/transformers/(?:modeling|models/)"),
    ),
)
_ASKED = re.compile(r"(?:[Tt]ried to allocate|Unable to allocate) ([\d.]{1,20}) (bytes|[KMGTP]i?B)")
# Under set_per_process_memory_fraction this is the limit, not the card's size.
_ALLOWED = re.compile(r"([\d.]{1,20}) ([KMGTP]iB) allowed; ")

# How many values an optimizer keeps for each weight; those that keep none are not listed.
_STATES = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "Adadelta": 2, "RMSprop": 1, "Adagrad": 1}
# Of the limit: where the state of the training alone takes this much, a smaller batch does not help.
_MOST_OF_IT = 0.7
_NEARLY_ALL = 0.85
_MOST_OF_RISE = 0.5
GOOD_SHARE = 0.3
_LEAST_AT_THE_LIMIT = 24e6  # bytes that workers copied
_LITTLE_OF_IT = 0.4  # of the limit: a model that takes less is not what does not fit

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
    pages: WorkerPages | None = None  # for the shape `copies`
    asked: float | None = None  # bytes of the allocation that was refused
    reached: str = ""  # how near the limit it was seen to come
    waiting: Waiting | None = None  # for the shape `prefetch`

    @property
    def culprit(self) -> Culprit | None:
        return self.frame.culprit if self.frame is not None else None


def says_memory_ran_out(message: str) -> bool:
    """Tell whether an exception says by itself that memory ran out, on a device or on the host."""
    return bool(_ON_DEVICE.search(message) or _ON_HOST.search(message))


@once
def exhaustion_of(record: RecordLike, ending: Ending) -> Exhaustion | None:
    """Say whether memory ran out, and how the curve looked; None when there is no sign of it."""
    exited = exit_of(record)
    kill = oom_kill_of(record, exited) if exited is not None or record.live else None
    raised = raised_at_end(record) if ending.kind in ("exception", "oom-killed") else None
    message = message_of(raised)
    on_device = bool(_ON_DEVICE.search(message))
    refused = says_memory_ran_out(message) or bool(record.facts.heal and _AT_OUR_LIMIT.search(message))
    if kill is not None and ending.kind != "oom-killed" and kill.role != "trainer":
        kill = None  # the run outlived it: a helper's lack of memory is not the run's
    curve = device_curve(record) if on_device else memory_curve(record)
    allowed = first_size(_ALLOWED, message)
    if curve is not None and on_device and allowed:
        curve = replace(own_device_curve(record) or curve, limit=allowed, kind="own")
    suspected = False
    if kill is None and not refused:
        # A kill with nothing to prove it, at the edge of the limit: worth a guess, and told as one.
        suspected = ending.kind == "killed" and ending.signal in ("SIGKILL", None) and curve is not None
        if not suspected or curve is None or curve.nearness < 0.95:
            return None
    progress, asked = progress_of(record), first_size(_ASKED, message)
    if kill is not None and curve is not None and not on_device:
        curve = curve.until(kill.at)
    where = _where(record, raised if refused else None)
    reached = _reached(curve, asked, kill if not on_device else None, refused=refused)
    pages = None if on_device else _copies(record, curve, kill)
    own, waiting = _of_victim(record, curve, kill), None
    if pages is not None and curve is not None:
        shape, clear, words = "copies", True, _while_copied(pages, curve, progress, reached)
    elif own is not None and kill is not None:
        # The trainer's steps set the pace, but it is the worker's own memory that grew.
        shape, clear, words = shape_of(record, own, progress, asked, False, reached=reached)
        words = f"{kill.who}: {words}"
    else:
        shape, clear, words = shape_of(record, curve, progress, asked, on_device, where, reached)
        words += _of_workers(record, curve, kill)
        if shape == "batch" and curve is not None and filled_by_workers(record, curve, kill.at if kill else None):
            shape, clear = "data", True  # some worker was quick enough for a step or two
    grew = shape == "copies" or (shape == "leak" and clear)
    if curve is not None and not grew and not on_device and not asked:
        end, steps = kill.at if kill is not None else None, progress.step or 0
        waiting = waiting_batches(record, curve, end, steps)
        if sent_to_workers(record, end) or waiting is not None:
            shape, clear = "prefetch" if waiting is not None else "spawned", True
            words = f"after {count(steps)} steps {reached}" if steps else f"before the first step {reached}"
    evidence = list(oom_evidence(record, kill)) if kill is not None else []
    if raised is not None and refused:
        evidence.append(Evidence("exception", raised.headline, raised.when))
    if kill is None and curve is not None and not on_device:
        evidence.append(Evidence("memory", curve.standing))
        evidence.extend(tree_evidence(record, ended_at(record)))
    grade: Grade = "supported" if clear and not suspected else "hypothesis"
    frame = culprit_frame(raised) if raised is not None and refused else None
    if frame is None and shape not in ("leak", "copies"):
        # A kill leaves no traceback; the stacks that were taken while memory shot up do.
        victim = kill.pid if kill is not None else None
        frame = (gathered_by(record, victim) if shape == "data" else None) or filled_by(record, victim)
        if frame is None and kill is not None and kill.role == "worker":
            frame = filled_by(record)  # of workers that are alike any may be the one that was looked at
    return Exhaustion(
        shape,
        grade,
        words,
        curve,
        on_device,
        tuple(evidence),
        frame,
        progress,
        pages,
        asked,
        reached,
        waiting,
    )


def _copies(record: RecordLike, curve: MemoryCurve | None, kill: OomKill | None) -> WorkerPages | None:
    """Give what forked workers copied, where that is most of what the run grew by since they were forked."""
    pages = copied_pages(record, kill.at if kill is not None else None, _LEAST_AT_THE_LIMIT)
    if pages is None or curve is None:
        return None
    rise = curve.peak - (curve.by(pages.since) or curve.points[0][1])
    return pages if pages.grown >= _MOST_OF_RISE * min(rise, pages.rise) else None


def _while_copied(pages: WorkerPages, curve: MemoryCurve, progress: Progress, reached: str) -> str:
    steps = progress.step or 0
    when = f"within {count(steps)} steps" if steps > 1 else "in the first step" if steps else "before the first step"
    before = curve.by(pages.since)
    return f"memory stood at {size(before)} before them, and {when} {reached}" if before else f"{when} {reached}"


def _of_victim(record: RecordLike, curve: MemoryCurve | None, kill: OomKill | None) -> MemoryCurve | None:
    """Give the curve of the worker that was killed, where it alone carries most of what the run grew by beside it."""
    if kill is None or kill.role != "worker" or curve is None:
        return None
    own = process_curve(record, kill.pid, curve)
    if own is None:
        return None
    own = own.until(kill.at)
    beside = [value for m, value in curve.points if m >= own.points[0][0]] or [curve.peak]
    rise = own.peak - own.points[0][1]
    return own if rise > 0 and rise >= _MOST_OF_RISE * (max(beside) - beside[0]) else None


def _of_workers(record: RecordLike, curve: MemoryCurve | None, kill: OomKill | None) -> str:
    """Say what forked workers took for themselves, where that is a good part of what the run held."""
    workers, taken = taken_by_workers(record, kill.at if kill is not None else None)
    if curve is None or taken < GOOD_SHARE * curve.peak:
        return ""
    return f"; {size(taken)} of it the {count(workers)} data workers took for themselves"


def shape_of(
    record: RecordLike,
    curve: MemoryCurve | None,
    progress: Progress,
    asked: float | None,
    on_device: bool,
    where: str = "",
    reached: str = "",
) -> tuple[str, bool, str]:
    """Name the shape of a curve that ended in lack of memory, whether it is clear, and say it with numbers."""
    steps = progress.step or 0
    reached = reached or _reached(curve, asked)
    want = f"one allocation asked for {size(asked)}; " if asked else ""
    in_step = progress.phase in ("forward", "backward", "optimizer") or where in ("step", "update")
    # A model that was called with a batch, and then no update: it was in the loss, or in what else the loop does.
    in_step = in_step or (steps == 0 and where == "" and bool(record.of(Batch)))
    if steps == 0 and where == "step" and _trains_nothing(record):
        grown = grown_in_a_loop(record)
        if grown is not None:
            rise, went_round = grown
            return "leak", went_round, f"memory grew by {size(rise)} while a loop called a model, until {reached}"
    if steps == 0 and where == "import":
        return "libraries", True, f"{want}before the first step {reached}"
    if steps == 0 and not in_step:
        return _before_the_first_step(record, curve, want, asked, on_device, where, reached)
    if steps == 0 and where == "update" and not _is_small(record, curve):
        # Forward and backward were done: it is the optimizer's own state that there was no memory for.
        return "model", True, f"{want}in the optimizer's first update {reached}"
    within = growth_within_step(record, curve, progress)
    if within is not None:
        rate = f"memory grew steadily by {size(within.per_step)} per backward within step {count(steps + 1)}"
        return "leak", True, f"{rate}, by {size(within.rise)} in all, until {reached}"
    large = large_batch_of(record)
    if large is not None:
        return "spike", True, f"{large.words}; {want}in step {count(steps + 1)} {reached}"
    if steps <= FIRST_STEPS and (need := state_of_training(record)) >= _MOST_OF_IT * _limit_of(curve):
        return (
            "model",
            True,
            f"weights, gradients and optimizer state take {size(need)}; {want}in step {steps + 1} {reached}",
        )
    if steps <= FIRST_STEPS:
        when = f"in step {steps + 1}" if steps else "in the first step"
        return "batch", steps > 0 or bool(asked) or _rose_in_step(curve, progress), f"{want}{when} {reached}"
    points = by_step(record, curve.points, progress) if curve is not None else ()
    found = growth_of(points, steps, curve.limit if curve is not None else None)
    if found.shape != "steady":
        bounds = [float(begin.step) for begin in epochs_of(record, progress.pid)]
        found = growth_by_epoch(points, bounds) or later_growth(points, steps) or found
    return _over_the_steps(found, steps, reached, want)


def _over_the_steps(found: Growth, steps: int, reached: str, want: str) -> tuple[str, bool, str]:
    if found.shape == "steady":
        rate = f"memory grew steadily by {size(found.per_step)} per step, {size(found.rise)} in {count(steps)} steps"
        if found.since:
            rate = f"memory grew by {size(found.per_step)} per step since step {count(found.since)}"
        if found.per_epoch:
            rate = f"memory grew by {size(found.per_epoch)} per epoch, {size(found.rise)} in {count(steps)} steps"
        return "leak", True, f"{rate}, until {reached}"
    if found.shape == "flat":
        then = f"; {reached}" if want else f", then {reached}"
        held = f"memory had been steady at {size(found.level)} for {count(steps)} steps{then}"
        return "spike", steps > 20 and found.readings >= 2, f"{want}{held}"
    if found.shape == "uneven":
        grown = f"memory rose by {size(found.rise)} over {count(steps)} steps, unevenly, until {reached}"
        return "leak", False, f"{want}{grown}"
    if found.readings < 2:
        # Many steps in the moment between two readings: nothing is known but that it was over at once.
        return "batch", False, f"{want}in step {steps + 1} {reached}"
    return "spike", False, f"{want}after {count(steps)} good steps {reached}"


def _before_the_first_step(
    record: RecordLike,
    curve: MemoryCurve | None,
    want: str,
    asked: float | None,
    on_device: bool,
    where: str,
    reached: str,
) -> tuple[str, bool, str]:
    # Without an adapter there may well be steps that nobody saw.
    steady = steady_rise(curve) if curve is not None and not frameworks_on(record) else None
    if steady is not None:
        return "leak", False, f"memory grew steadily by {size(steady)} over the run, until {reached}"
    looks = memory_looks(record)
    known = where or looks
    model = where == "model" if known else any(event.what == "model" for event in record.of(Made))
    larger = bool(asked and curve and curve.limit and asked > curve.limit)
    # Looks all along a climb that began low: what filled it is seen, not guessed.
    climbed = len(looks) >= 3 and looks[0].used < 0.7 * looks[-1].used
    shape = "batch" if on_device else "data"
    if (model or on_device) and not _is_small(record, curve):
        shape = "model"
    return shape, larger or climbed, f"{want}before the first step {reached}"


def _trains_nothing(record: RecordLike) -> bool:
    """Tell whether no optimizer was ever made: a model that is only asked has no step to be too large."""
    return not any(event.what == "optimizer" for event in record.of(Made))


def _where(record: RecordLike, raised: Raised | None) -> str:
    """Say what a framework was at when memory ran out, by the traceback or by most of the looks: see `_ACTIVITIES`."""
    stacks = [raised.root.frames, raised.frames] if raised is not None else []
    looks = memory_looks(record) if not stacks else ()
    importing = [look for look in looks if _activity(look.frames) == "import"]
    if len(importing) > len(looks) / 2 and importing[-1].used >= _NEARLY_ALL * importing[-1].limit:
        return "import"
    found = [_activity(frames) for frames in stacks or [look.frames for look in looks[-8:]]]
    known = [activity for activity in found if activity not in ("", "import")]
    return max(known, key=known.count) if len(known) > len(found) / 2 else ""


def _activity(frames: tuple[Frame, ...]) -> str:
    own = next((frame for frame in frames if frame.user or frame.file.startswith("<frozen importlib")), None)
    if own is not None and not own.user:
        return "import"  # of a library's: what a module of the user's own loads is on a line of the user's
    for activity, pattern in _ACTIVITIES:
        if any(pattern.search(f"{frame.file} {frame.name}".replace("\\", "/")) for frame in frames):
            return activity
    return ""


@once
def state_of_training(record: RecordLike) -> float:
    """Give what weights, gradients and the optimizer's own state take in all, where the optimizers' makers told it."""
    total = 0.0
    for event in record.of(Made):
        if event.what == "optimizer" and event.made == 1:
            total += (event.weights or 0.0) * (2 + _STATES.get(event.name, 0))
    return total


def _is_small(record: RecordLike, curve: MemoryCurve | None) -> bool:
    """Tell whether weights, gradients and optimizer state are known, and far from what there is: not to blame."""
    return 0 < state_of_training(record) < _LITTLE_OF_IT * _limit_of(curve)


def _limit_of(curve: MemoryCurve | None) -> float:
    return curve.limit if curve is not None and curve.limit else float("inf")


def _rose_in_step(curve: MemoryCurve | None, progress: Progress) -> bool:
    """Tell whether most of the memory came within the phase of the step that the run died in."""
    if curve is None or progress.phase_since is None:
        return False
    before = curve.by(progress.phase_since)
    return before is not None and before < 0.6 * curve.peak


def _reached(
    curve: MemoryCurve | None, asked: float | None = None, kill: OomKill | None = None, *, refused: bool = False
) -> str:
    if curve is None:
        return "memory ran out (no readings of it were kept)"
    if not curve.limit:
        return f"it was last read at {size(curve.last)}"
    if asked and curve.peak < NEAR * curve.limit:
        # What was refused never became memory of the run's.
        return f"it stood at {size(curve.late)}, {curve.limit_words} is {size(curve.limit)}"
    if kill is not None and curve.peak < NEAR * curve.limit:
        return _unseen(curve, curve.limit, kill)
    if refused and curve.peak < NEAR * curve.limit:
        held = f"while it stood at {size(curve.late)}; {curve.limit_words} is {size(curve.limit)}"
        return f"an allocation was refused, of a size that is not known, {held}"
    part = share(curve.peak / curve.limit)
    return f"it reached {size(curve.peak)}, {part} of {curve.limit_words} of {size(curve.limit)}"


def _unseen(curve: MemoryCurve, limit: float, kill: OomKill) -> str:
    """Say what is known of a kill at a limit that no reading came near."""
    if kill.scope == "machine":
        return f"the machine's memory was full; this run held {size(curve.late)} of {size(limit)}"
    at, value = curve.points[-1]
    before = f"{duration(kill.at - at)} before" if kill.at - at >= 0.1 else "just before"
    return (
        f"the kernel killed it at {curve.limit_words} of {size(limit)}; the last reading, {before}, was {size(value)}: "
        "it grew faster than it was read"
    )
