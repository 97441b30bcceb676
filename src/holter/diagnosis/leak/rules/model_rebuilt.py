"""Models, optimizers or compiled functions are made anew in a loop, and what was made before stays.

What it sees: the number of models, optimizers or functions made on one line grows with the memory; where they are
kept in a list, what the list holds.
Why it matters: each takes its weights, its optimizer's state and its traced graphs with it; a search or a
cross-validation dies at some fold. Keras keeps global state of every model until `clear_session`, even of those that
Python has let go, and TensorFlow what it compiled for it even after that.
May be confused with: an ensemble that is made once; models that are made anew and freed, whose memory stays flat.
How sure: established when the models alive and the memory grow together, or the list that holds them explains most of
the growth; supported when only their number grows with it; else a hypothesis.
Cure: build once and reset the weights, or one process for each; for PyTorch: keep scores or files instead of models.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.leak.cause import LeakCause, leak_cause
from holter.diagnosis.leak.retained import Holder
from holter.diagnosis.leak.retained_line import line_of
from holter.finding import Culprit, Cure, Ending, Finding
from holter.record.events.agent import Adapter
from holter.source.edits import before_loop, only_filled, without_statement
from holter.source.lines import calls_of, culprit_at, function_around, loop_around, turn_of_loop
from holter.units import count

CAUSE = "leak.model-rebuilt"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say how many are alive, and which line makes them."""
    found = leak_cause(record, ending)
    if found is None or found.cause != CAUSE:
        return None
    births, holder = found.births, found.holder
    if births is not None:
        # The constructor may sit in a function of its own: what runs it again and again is the line in the loop.
        made = births.culprit
        turn = made.line if _keeps_too(record, made, holder) else turn_of_loop(record.source(made.file), made.line)
        culprit = made if turn == made.line else culprit_at(made.file, record.source(made.file), turn)
        each = f"line {culprit.line} makes a new `{births.name}` again and again"
        state = f"{count(births.alive)} of {count(births.made)} {births.what}s are alive"
        if births.what == "optimizer" or not births.kept:
            state = f"{count(births.made)} were made, {count(births.alive)} are alive"
        claim = f"{each}: {state}; {found.words}"
    elif holder is not None:
        line, _statement = line_of(record, holder)
        claim = f"{holder.kind}s pile up in {holder.where} ({holder.entries}): {found.words}"
        return Finding(CAUSE, found.grade, claim, found.evidence, line, _cures(record, found, line), found.forecast)
    else:
        return None
    return Finding(CAUSE, found.grade, claim, found.evidence, culprit, _cures(record, found, culprit), found.forecast)


def _keeps_too(record: RecordLike, made: Culprit, holder: Holder | None) -> bool:
    """Tell whether the function that makes them is the one that keeps them: then it is what to look at."""
    line = line_of(record, holder)[0] if holder is not None else None
    lines = record.source(made.file)
    function = function_around(lines, made.line)
    return line is not None and line.file == made.file and function_around(lines, line.line) == function != ""


def _cures(record: RecordLike, found: LeakCause, culprit: Culprit | None) -> tuple[Cure, ...]:
    lines = record.source(culprit.file) if culprit is not None else []
    line, births = culprit.line if culprit is not None else 0, found.births
    if births is not None and births.compiled:
        return (Cure("make it once, before the loop, and call it in the loop", before_loop(lines, line), "equivalent"),)
    dropped = (_without_keeping(record, found.holder),) if found.holder is not None else ()
    if not any(event.framework == "keras" for event in record.of(Adapter)):
        return (
            *dropped,
            Cure("build it once before the loop, and load its first state at each pass", "", "equivalent"),
        )
    # What a compiled `fit` holds of a model stays when the model is gone, whatever is deleted or cleared.
    return (*_built_once(lines, line), *dropped)


def _without_keeping(record: RecordLike, holder: Holder) -> Cure:
    """Say what keeps them: nothing releases a model that a variable of the script still holds."""
    line, statement = line_of(record, holder)
    lines = record.source(line.file) if line is not None else []
    how = ""
    if line is not None and statement is not None and only_filled(lines, holder.variable):
        how = without_statement(lines, line.line)
    instead = "" if how else ": keep the score, or a file of its weights"
    return Cure(f"do not keep the {holder.kind}s in `{holder.variable}`{instead}", how)


def _built_once(lines: list[str], line: int) -> tuple[Cure, ...]:
    """Build a Keras model before the loop where every pass builds the same one."""
    apart = Cure("train each in a process of its own: its memory is given back when it ends", "", "equivalent")
    moved = before_loop(lines, line)
    name = lines[line - 1].partition("=")[0].strip() if moved else ""
    title = "build and compile it once, before the loop, and set its weights back at each pass"
    if not lines:
        return (Cure(title, "", "changed"), apart)
    if not name.isidentifier():
        return (apart,)
    loop = loop_around(lines, line) or 0
    compiles = [at for at, _ in calls_of(lines, ("compile",)) if loop_around(lines, at) == loop]
    if compiles:
        return (Cure(title, "", "changed"), apart)  # compiled anew, it is as good as built anew
    rows = moved.splitlines()
    inside = rows[-1][2:]
    indent = inside[: len(inside) - len(inside.lstrip())]
    how = "\n".join(
        [rows[0], f"+ {name}_start = {name}.get_weights()", *rows[1:], f"+ {indent}{name}.set_weights({name}_start)"]
    )
    return (Cure(title, how, "changed"), apart)
