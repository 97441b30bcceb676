"""The step is thousands of tiny operations, started one by one from Python.

What it sees: a look at single steps that counts a thousand operations and more, each on few numbers and each taking
about what it costs to start one; the line in a loop that they come from; or a Keras model or a loop with a tape that
runs eagerly, from fifty operations on.
Why it matters: the processor (or the GPU, which waits for it) computes for a small part of the time. A fused layer or
a compiled step does the same work many times faster.
May be confused with: large operations, which take long since they compute; waiting for data; a trace at every step.
How sure: established when a line in a loop is known that the operations of a step come from, or `run_eagerly` was set,
and the time for each is that of starting it; supported when it is longer, as on a busy machine; a hypothesis for a
short tape without a graph, which is slow and works, and where no loop of the script's own is seen or half of the step
is neither the model nor its update: a solver, a game. Less than ten seconds of such steps, and steps of a few hundred
operations of PyTorch, are left alone.
Cure: the fused layer, the whole batch at once, `tf.function`; `torch.compile` where the step is no loop, since it
unrolls one, for minutes.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.step_calls import BusyLine, Step, gpu_use, overhead_evidence, usual_step
from holter.finding import Culprit, Cure, Ending, Finding, Grade
from holter.source.edits import before_function, function_of, without_setting
from holter.source.lines import called_name, loop_around, settings_of, tree_of
from holter.units import count, duration

CAUSE = "overhead.eager-loop"
YIELDS_TO = ("recompile", "thrash")

_OPERATIONS = 1000
_REPEATS = 64
_FEWER = 500  # operations that are enough where one line is repeated so often
_EAGERLY = 50  # and where the model was told to run eagerly, or TensorFlow runs without a graph
_SECONDS = 10.0
_MAIN_SHARE = 0.6  # of a step
_SMALL_ELEMENTS = 65_536  # numbers: an operation on so few takes about as long as starting it
_STARTING = 150e-6
_BUSY_MACHINE = 400e-6

# A cell that takes one step of a sequence, and the layer that takes all of them.
_LAYERS = {
    "LSTMCell": "LSTM",
    "GRUCell": "GRU",
    "RNNCell": "RNN",
    "SimpleRNNCell": "SimpleRNN",
    "StackedRNNCells": "RNN",
}
# What a graph can't hold: values read back, and Python's own lists and files.
_NOT_IN_A_GRAPH = ("numpy", "item", "append", "print", "float", "int", "write")


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
    if not (many or eagerly or taped) or (step.elements or 0.0) > _SMALL_ELEMENTS or step.each > _BUSY_MACHINE:
        return None
    if step.by_calls and step.in_python < 0.5:
        return None
    busy = gpu_use(record)
    if busy is not None and busy > 0.7:
        return None
    looping = _in_own_loop(record, step)
    if looping is not None and not eagerly:
        step, repeats = replace(step, repeated=looping), looping.calls
    known = eagerly or repeats >= _REPEATS
    grade: Grade = "established" if known and step.each <= _STARTING and step.elements else "supported"
    # What a library's loop asks for again and again, or a game between two moves, is no loop that could be spared.
    read = any(record.source(one.at.file) for one in step.lines)
    spared = step.eager_tf or not read or (looping is not None and step.in_training >= _MAIN_SHARE)
    if not (many or eagerly) or not (eagerly or spared):
        grade = "hypothesis"
    claim = (
        f"each step of {duration(step.seconds)} runs {count(step.operations)} small operations one by one from "
        f"Python, {duration(step.each)} for each: the time goes into starting them, not into computing"
    )
    if step.run_eagerly:
        claim = f"the model runs eagerly (`run_eagerly`), so {claim}"
        culprit = _eager_setting(record, step)
        cures = _not_eagerly(record, culprit)
    else:
        culprit, cures = _in_a_loop(record, step, repeats >= _REPEATS)
        if repeats >= _REPEATS and step.repeated is not None:
            claim += f"; {count(repeats)} calls in a step come from line {step.repeated.at.line}"
    return Finding(CAUSE, grade, claim, overhead_evidence(record, step), culprit, cures)


def _in_own_loop(record: RecordLike, step: Step) -> BusyLine | None:
    """Find the line in a loop of its own function that starts operations again and again."""
    first = [step.repeated] if step.repeated is not None else []
    for one in (*first, *step.lines):
        if one.calls >= _REPEATS and loop_around(record.source(one.at.file), one.at.line) is not None:
            return one
    return None


def _eager_setting(record: RecordLike, step: Step) -> Culprit | None:
    """Find the line that says to run eagerly: that of the `compile`, or the setting itself within it."""
    at = step.compiled or step.fit
    if at is None:
        return None
    lines = record.source(at.file)
    named = [line for line, _ in settings_of(lines, "run_eagerly") if line >= at.line - 1]
    if not named:
        return at
    return Culprit(at.file, named[0], at.function, lines[named[0] - 1].strip()[:200])


def _not_eagerly(record: RecordLike, setting: Culprit | None) -> tuple[Cure, ...]:
    how = without_setting(record.source(setting.file), setting.line, "run_eagerly") if setting is not None else ""
    return (Cure("let Keras compile the step: leave `run_eagerly` out of the compile()", how, "equivalent"),)


def _in_a_loop(record: RecordLike, step: Step, repeated: bool) -> tuple[Culprit | None, tuple[Cure, ...]]:
    at = step.repeated.at if step.repeated is not None else None
    lines = record.source(at.file) if at is not None else []
    full_batch = _full_batch(lines, at, "nn" if not step.eager_tf else "keras.layers")
    if step.eager_tf:
        decorate = _as_a_graph(lines)
        taped = at is not None and any(called_name(call) == "gradient" for call in _calls_on(lines, at.line))
        return at, (decorate,) if taped or not lines else (decorate, full_batch)
    compiled = Cure("compile the step: torch.compile(model); its first step then takes up to minutes", "", "equivalent")
    return at, (full_batch,) if repeated else (full_batch, compiled)


def _as_a_graph(lines: list[str]) -> Cure:
    """Put `tf.function` above the function that holds the tape, where nothing in it has to stay in Python."""
    tree = tree_of(lines)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree is not None else []
    tapes = [call.lineno for call in calls if called_name(call) == "GradientTape"]
    step = function_of(lines, tapes[0]) if len(tapes) == 1 else None
    if step is None:
        return Cure("make the step a function and compile it into a graph: @tf.function above it", "", "equivalent")
    inside = {called_name(node) for node in ast.walk(step) if isinstance(node, ast.Call)}
    named = any(isinstance(node, ast.Name) and node.id == "tf" for node in ast.walk(step))
    how = before_function(lines, tapes[0], "@tf.function") if named and not inside & {*_NOT_IN_A_GRAPH} else ""
    return Cure(f"compile the step into a graph: @tf.function above `{step.name}`", how, "equivalent")


def _full_batch(lines: list[str], at: Culprit | None, library: str) -> Cure:
    """Do in one call what the loop does in many: over the sequence, or over the batch."""
    cell = _cell_on(lines, at.line) if at is not None else None
    if cell is not None:
        line, name = cell
        title = (
            f"let one {library}.{_LAYERS[name]} run over the whole sequence: make it where line {line} makes the "
            f"{name}, and call it once, in place of the loop"
        )
        return Cure(title, "", "equivalent")
    if at is not None and _recurs(lines, at):
        title = f"let one layer run over the whole sequence ({library}.LSTM, GRU or RNN), in place of the loop"
        return Cure(title, "", "equivalent")
    return Cure("compute the whole batch at once instead of piece by piece, with no loop", "", "equivalent")


def _cell_on(lines: list[str], line: int) -> tuple[int, str] | None:
    """Find the cell that a line calls: where the script makes it, and its class."""
    called = {called_name(call) for call in _calls_on(lines, line)}
    tree = tree_of(lines)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.Assign) or not called & {_last_name(target) for target in node.targets}:
            continue
        for made in ast.walk(node.value):
            if isinstance(made, ast.Call) and called_name(made) in _LAYERS:
                return node.lineno, called_name(made)
    return None


def _recurs(lines: list[str], at: Culprit) -> bool:
    """Tell whether a line hands its last result to a function again: `h = f(x[t], h)`, not `s = s + f(x)`."""
    if lines and loop_around(lines, at.line) is None:
        return False
    tree = tree_of(lines) or tree_of([at.code])
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Assign) and (node.lineno == at.line or not lines):
            names = {one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)}
            calls = [one for one in ast.walk(node.value) if isinstance(one, ast.Call)]
            given = [part for call in calls for one in call.args for part in ast.walk(one)]
            return any(isinstance(part, ast.Name) and part.id in names for part in given)
    return False


def _calls_on(lines: list[str], line: int) -> list[ast.Call]:
    tree = tree_of(lines)
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call) and n.lineno == line] if tree is not None else []


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
