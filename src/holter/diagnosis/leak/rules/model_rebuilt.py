"""Models, optimizers or compiled functions are made anew in a loop, and what was made before stays.

What it sees: the number of models, optimizers or functions made on one line grows with the memory; where they are
kept in a list, what the list holds.
Why it matters: each takes its weights, its optimizer's state and its traced graphs with it; a search or a
cross-validation dies at some fold. Keras keeps global state of every model until `clear_session`, even of those that
Python has let go.
May be confused with: an ensemble that is made once; models that are made anew and freed, whose memory stays flat.
How sure: established when the models alive and the memory grow together, or the list that holds them explains most of
the growth; supported when only their number grows with it; else a hypothesis.
Cure: build once and reset the weights, or release the old one before making the next.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.leak.cause import LeakCause, leak_cause
from holter.diagnosis.leak.retained_line import line_of
from holter.finding import Culprit, Cure, Ending, Finding
from holter.record.events.agent import Adapter
from holter.source.lines import culprit_at, turn_of_loop
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
        turn = turn_of_loop(record.source(made.file), made.line)
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


def _cures(record: RecordLike, found: LeakCause, culprit: Culprit | None) -> tuple[Cure, ...]:
    keras = any(event.framework == "keras" for event in record.of(Adapter))
    code = culprit.code if culprit is not None else ""
    name = code.partition("=")[0].strip() if "=" in code and "(" not in code.partition("=")[0] else "model"
    if keras:
        return (
            Cure("release the old one before each new one", "+ keras.backend.clear_session()\n+ gc.collect()", "exact"),
            Cure("build it once before the loop, and set its weights back at each pass",
                 f"+ start = {name}.get_weights()\n+ {name}.set_weights(start)", "exact"),
        )  # fmt: skip
    kept = f"`{found.holder.name}`" if found.holder is not None else "whatever still refers to the old one"
    return (
        Cure(f"keep the score or the state_dict on disk, not the model: {kept}",
             f"+ torch.save({name}.state_dict(), path)\n+ del {name}", "exact"),
        Cure("build it once before the loop, and load its first state at each pass",
             f"+ start = copy.deepcopy({name}.state_dict())\n+ {name}.load_state_dict(start)", "exact"),
    )  # fmt: skip
