"""Steps so small that most of each is the fixed cost of taking one.

What it sees: a batch of four samples or fewer, a thousand steps and more in an epoch, and steps whose operations work
on few numbers; or a graph of thousands of operations with many more products than variables, made by unrolling a loop.
Why it matters: a step costs nearly the same for one sample as for thirty-two, so an epoch takes many times as long.
May be confused with: a large model that only fits one sample (its operations are large); waiting for data; toy scripts,
whose epochs are short.
How sure: supported where batch, steps and size of the operations are all known, or where tracing took long and the
graph shows the loop; a hypothesis is never told.
Cure: a larger batch, several steps at once, no unrolling.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.step_calls import Step, gpu_use, overhead_evidence, usual_step
from holter.diagnosis.slow.traces import Traced, traced_in
from holter.finding import Culprit, Cure, Ending, Evidence, Finding
from holter.record.events.agent import EpochBegins, Made, Schedule
from holter.source.edits import with_setting, with_value, without_setting
from holter.source.lines import culprit_at, loops_in, settings_of
from holter.units import count, duration

CAUSE = "overhead.small-steps"
YIELDS_TO = ("recompile", "thrash", "input-bound", "overhead.eager-loop")

_BATCH = 4
_STEPS = 1000
_SECONDS = 10.0
_SMALL_ELEMENTS = 4096  # numbers in an operation
_SHORT_STEP_S = 5e-3  # a step of a compiled model: about what Keras itself takes for one
_UNROLLED = 5000  # operations of a graph
_REUSE = 30  # products for each variable: a layer has a few, a loop over a sequence hundreds
_TRACING = 8.0  # seconds: the steps of an unrolled loop are no slower than others, but it takes long to make
_SHORT_OPERATION_S = 500e-6


def examine(record: RecordLike, _ending: Ending) -> Iterable[Finding]:
    """Say how small the steps are and how many an epoch takes, or how large the unrolled graph is."""
    step = usual_step(record)
    if step is None:
        return
    busy = gpu_use(record)
    if busy is not None and busy > 0.7:
        return
    large = [t for t in traced_in(record) if t.graph >= _UNROLLED and t.products >= _REUSE * max(1, t.variables)]
    unrolled = max(large, key=lambda traced: traced.graph, default=None)
    if unrolled is not None and unrolled.seconds >= _TRACING:
        yield _unrolled(record, step, unrolled)
    per_epoch = _steps_per_epoch(record)
    if step.total < _SECONDS or step.data > 0.5 or not 1 <= step.batch <= _BATCH or per_epoch < _STEPS:
        return
    # Small operations, each about as long as it takes to start one; or a compiled step about as long as Keras takes.
    if 0 < (step.elements or 0) <= _SMALL_ELEMENTS and (
        step.each <= _SHORT_OPERATION_S or step.seconds <= _SHORT_STEP_S
    ):
        yield _tiny(record, step, per_epoch)


def _tiny(record: RecordLike, step: Step, per_epoch: int) -> Finding:
    samples = "sample" if step.batch == 1 else "samples"
    claim = (
        f"each step trains on {step.batch} {samples} and takes {duration(step.total / step.steps)}, nearly all of it "
        f"the fixed cost of a step; an epoch is {count(per_epoch)} such steps"
    )
    line = _batch_line(record, step)
    return Finding(CAUSE, "supported", claim, overhead_evidence(record, step), line, _larger(record, step, line))


def _larger(record: RecordLike, step: Step, line: Culprit | None) -> tuple[Cure, ...]:
    lines = record.source(line.file) if line is not None else []
    how = with_value(lines, line.line, "batch_size", "32") if line is not None else ""
    larger = Cure("a larger batch: 32 samples cost little more than one", how, "changed")
    if step.fit is None:
        return (
            larger,
            Cure("or compile the step, which lowers its fixed cost: torch.compile(model)", "", "equivalent"),
        )
    made = step.compiled
    several = (
        with_setting(record.source(made.file), made.line, ("compile",), "steps_per_execution", "32") if made else ""
    )
    title = "or take several steps in one call: steps_per_execution=32 in model.compile"
    return (larger, Cure(title, several, "equivalent"))


def _batch_line(record: RecordLike, step: Step) -> Culprit | None:
    """Find the line that sets the batch: the loader's, or the `fit`'s."""
    for event in record.of(Made):
        if event.what == "loader" and event.batch_size == step.batch:
            return _setting(record, event.file, event.line or 0, event.code)
    if step.fit is not None:
        return _setting(record, step.fit.file, step.fit.line, step.fit.code)
    return None


def _setting(record: RecordLike, file: str, line: int, code: str) -> Culprit:
    """Give the line of the setting itself where a call runs over several."""
    lines = record.source(file)
    named = [at for at, _ in settings_of(lines, "batch_size") if line <= at <= line + 8]
    if named and "batch_size" not in code:
        return Culprit(file, named[0], "", lines[named[0] - 1].strip()[:200])
    return Culprit(file, line, "", code)


def _steps_per_epoch(record: RecordLike) -> int:
    known = [event.steps_per_epoch or 0 for event in record.of(Schedule)]
    starts = [event.step or 0 for event in record.of(EpochBegins)]
    known += [after - before for before, after in pairwise(starts)]
    return max(known, default=0)


def _loops(lines: list[str], traced: Traced) -> list[int]:
    """Give the loops of the traced function, or of a layer's `call` where Keras itself was traced."""
    return loops_in(lines, ("call", "train_step") if traced.what == "keras" else (traced.name,))


def _unrolled(record: RecordLike, step: Step, traced: Traced) -> Finding:
    claim = (
        f"tracing `{traced.name}` took {duration(traced.seconds)} before a step was done: a loop in it is unrolled, so "
        f"that its graph has {count(traced.graph)} small operations, {count(traced.products)} products for "
        f"{count(traced.variables)} variables"
    )
    lines = record.source(traced.defined.file)
    named = [at for at, _ in settings_of(lines, "unroll")] or _loops(lines, traced)
    culprit = culprit_at(traced.defined.file, lines, named[0]) if named else traced.defined
    how = without_setting(lines, culprit.line, "unroll")
    cures = (
        (Cure("let the layer loop by itself: leave `unroll` out", how, "equivalent"),)
        if how
        else (Cure("let a layer such as keras.layers.LSTM loop by itself, or loop over tf.range(n)", "", "equivalent"),)
    )
    evidence = (Evidence("operations in the graph", count(traced.graph)), *overhead_evidence(record, step))
    return Finding(CAUSE, "supported", claim, evidence, culprit, cures)
