"""The step is thousands of tiny operations, started one by one from Python.

What it sees: a look at single steps that counts a thousand operations and more, each on few numbers and each taking
about what it costs to start one; the line in a loop that they come from; or a Keras model or a loop with a tape that
runs eagerly, from fifty operations on.
Why it matters: the processor (or the GPU, which waits for it) computes for a small part of the time. A fused layer or
a compiled step does the same work many times faster.
May be confused with: large operations, which take long since they compute; waiting for data; a trace at every step.
How sure: established when a line is known that the operations of a step come from, or `run_eagerly` was set, and the
time for each is that of starting it; supported when it is longer, as on a busy machine; a hypothesis for a short tape
without a graph, which is slow and works. Less than ten seconds of such steps, and steps of a few hundred operations
of PyTorch, are left alone.
Cure: the fused layer, the whole batch at once, `tf.function`, `torch.compile`.
"""

from __future__ import annotations

import re

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.step_calls import Step, gpu_use, overhead_evidence, usual_step
from holter.finding import Culprit, Cure, Ending, Finding, Grade
from holter.source.lines import settings_of
from holter.units import count, duration

CAUSE = "overhead.eager-loop"
YIELDS_TO = ("recompile", "thrash")

_OPERATIONS = 1000
_REPEATS = 64
_FEWER = 500  # operations that are enough where one line is repeated so often
_EAGERLY = 50  # and where the model was told to run eagerly, or TensorFlow runs without a graph
_SECONDS = 10.0
_SMALL = 65_536  # numbers: an operation on so few takes about as long as starting it
_STARTING = 150e-6
_BUSY_MACHINE = 400e-6

_RECURRENT = re.compile(r"cell|lstm|gru|rnn|hidden|\bh\b", re.IGNORECASE)


def examine(record: RecordLike, _ending: Ending) -> Finding | None:
    """Say how many operations a step is made of, and which line starts them."""
    step = usual_step(record)
    if step is None or step.total < _SECONDS or step.data > 0.5 or not step.operations:
        return None
    repeats = step.repeated.calls if step.repeated is not None else 0
    many = step.operations >= _OPERATIONS or (repeats >= _REPEATS and step.operations >= _FEWER)
    eagerly = step.run_eagerly and step.operations >= _EAGERLY
    # A loop with a tape that was never made a graph: as eager as if it had been told to be.
    taped = step.eager_tf and step.operations >= _EAGERLY and step.each <= _STARTING
    if not (many or eagerly or taped) or (step.elements or 0.0) > _SMALL or step.each > _BUSY_MACHINE:
        return None
    if step.by_calls and step.in_python < 0.5:
        return None
    busy = gpu_use(record)
    if busy is not None and busy > 0.7:
        return None
    known = eagerly or repeats >= _REPEATS
    grade: Grade = "established" if known and step.each <= _STARTING and step.elements else "supported"
    if not (many or eagerly):
        grade = "hypothesis"
    claim = (
        f"each step of {duration(step.seconds)} runs {count(step.operations)} small operations one by one from "
        f"Python, {duration(step.each)} for each: the time goes into starting them, not into computing"
    )
    culprit, cures = (_told_to(record, step), _EAGER_CURES) if eagerly and not many else _in_a_loop(step)
    if step.run_eagerly:
        claim = f"the model runs eagerly (`run_eagerly`), so {claim}"
        culprit, cures = _told_to(record, step), _EAGER_CURES
    elif repeats >= _REPEATS and step.repeated is not None:
        claim += f"; {count(repeats)} calls in a step come from line {step.repeated.at.line}"
    return Finding(CAUSE, grade, claim, overhead_evidence(record, step), culprit, cures)


_EAGER_CURES = (
    Cure(
        "let Keras compile the step: it is a graph unless told otherwise",
        "-    model.compile(..., run_eagerly=True)\n+    model.compile(...)",
    ),
)


def _told_to(record: RecordLike, step: Step) -> Culprit | None:
    """Find the line that says to run eagerly: that of the `compile`, or the setting itself within it."""
    at = step.compiled or step.fit
    if at is None:
        return None
    lines = record.source(at.file)
    named = [line for line, _ in settings_of(lines, "run_eagerly") if line >= at.line - 1]
    if not named:
        return at
    return Culprit(at.file, named[0], at.function, lines[named[0] - 1].strip()[:200])


def _in_a_loop(step: Step) -> tuple[Culprit | None, tuple[Cure, ...]]:
    at = step.repeated.at if step.repeated is not None else None
    code = at.code if at is not None else ""
    if step.eager_tf:
        decorate = Cure(
            "compile the step into a graph",
            "+    @tf.function\n     def train_step(x, y):\n         with tf.GradientTape() as tape: ...",
        )
        if ".gradient(" in code:
            return at, (decorate,)
        return at, (decorate, _whole(code, "keras.layers.LSTM(units)(x)"))
    whole = _whole(code, "nn.LSTM(n, hidden, batch_first=True)(x)")
    return at, (whole, Cure("compile the step, which joins small operations", "+    model = torch.compile(model)"))


def _whole(code: str, layer: str) -> Cure:
    """Do in one call what the loop does in many: over the sequence, or over the batch."""
    if _RECURRENT.search(code):
        how = f"-    for t in range(length): {code}\n+    outputs, state = {layer}"
        return Cure("let one layer run over the whole sequence", how, "equivalent")
    how = f"-    for ...: {code}\n+    # the same on the whole tensor, with no loop"
    return Cure("compute the whole batch at once instead of piece by piece", how, "equivalent")
