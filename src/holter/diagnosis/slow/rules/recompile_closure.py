"""A traced or compiled function is itself made anew, again and again, so that nothing traced before can be used.

What it sees: traces past the warm-up where the function object is new (`tf.function`, `torch.compile` or
`torch.jit.trace` called inside the loop, a model compiled anew), or where an object that it is given is.
Why it matters: every pass pays for tracing what the pass before has traced already, and the old graphs pile up.
May be confused with: one function for each model of a search or each fold, which is traced once and then used.
How sure: established when most traces come from new functions for the same model and they go on for as long as the
run, at a tenth of its time or at every fifth step, or when the compiler itself gave up; below that nothing is said.
Cure: make the function once, before the loop.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.retracing import Retracing, culprit_of, retracing_of
from holter.finding import Culprit, Cure, Ending, Finding
from holter.source.edits import before_loop

CAUSE = "recompile.closure"
# A new model brings its own functions: that they are traced anew is the least of it.
YIELDS_TO = ("leak.model-rebuilt",)


def examine(record: RecordLike, _ending: Ending) -> Finding | None:
    """Name the line that makes the function anew."""
    found = retracing_of(record)
    if found is None or found.kind != "closure":
        return None
    culprit = culprit_of(found)
    return Finding(CAUSE, found.grade, found.claim, found.evidence, culprit, (_cure(record, found, culprit),))


def _cure(record: RecordLike, found: Retracing, culprit: Culprit) -> Cure:
    traced = found.traced
    if traced.what == "keras":
        return Cure(
            "compile the model once, before the loop; change the rate with model.optimizer.learning_rate.assign(rate)",
            "",
            "equivalent",
        )
    if found.change.argument and traced.functions < 0.5 * traced.count:
        name = found.change.argument
        return Cure(
            f"make `{name}` once and pass the same object each time, or let the function find it by itself",
            "",
            "equivalent",
        )
    moved = before_loop(record.source(culprit.file), culprit.line)
    return Cure("make it once, before the loop, and call it in the loop", moved, "equivalent")
