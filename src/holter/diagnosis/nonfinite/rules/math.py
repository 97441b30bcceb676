"""A function was asked for a value, or a slope, at the edge of where it has one.

What it sees: the first operation whose inputs were finite and whose result was not: log of 0, a division by zero, a
power or exponential that overflows, a softmax over nothing; or a gradient that is non-finite at a finite loss.
Why it matters: it may take thousands of steps until a value meets the edge, and then everything is lost at once.
May be confused with: a rate that is too high or a bad sample, which bring values there; the history and the batch
tell them apart.
How sure: established when the operation was seen with what went in; supported when one line alone can have done it.
Cure: an epsilon, a clamp, or the function that is made for it.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.nonfinite.lines import operation_line
from holter.diagnosis.nonfinite.nonfinite import Nonfinite, nonfinite_of
from holter.diagnosis.nonfinite.repaired_line import repaired_line
from holter.diagnosis.nonfinite.words import at_operation, evidence_of, first_bad
from holter.finding import Culprit, Cure, Ending, Finding

CAUSE = "nan.math"

_ADVICE = (
    ("log", "add an epsilon or clamp what goes in (log(p + 1e-8)), or use a loss that takes logits"),
    ("division", "add an epsilon to what is divided by, or clamp it (x / (s + 1e-8))"),
    ("0 / 0", "add an epsilon to what is divided by, or clamp it (x / (s + 1e-8))"),
    ("root", "clamp what goes in: sqrt(x.clamp(min=1e-8))"),
    ("sqrt", "keep away from 0, where the slope is infinite: sqrt(x + 1e-8)"),
    ("power", "clamp what goes in away from 0, and bound the exponent"),
    ("overflow", "subtract the largest value first (log-sum-exp), or clamp what goes in"),
    ("softmax", "leave at least one place of each row unmasked, or use a large negative number instead of -inf"),
    ("ignored", "skip batches in which every target is ignored, or sum and divide by max(count, 1)"),
    ("nothing", "skip empty selections, or sum and divide by max(count, 1)"),
    ("deviation", "a deviation needs two values: unbiased=False, or skip batches of one"),
    ("acos", "clamp to [-1 + 1e-7, 1 - 1e-7]"),
    ("asin", "clamp to [-1 + 1e-7, 1 - 1e-7]"),
)


def examine(record: RecordLike, _ending: Ending) -> Finding | None:
    """Name the operation, its edge, its module and the line it stands on."""
    seen = nonfinite_of(record)
    if seen is None or seen.detail != "math":
        return None
    line = operation_line(seen)
    claim = f"{first_bad(seen)}: {at_operation(seen)}"
    return Finding(CAUSE, seen.grade, claim, evidence_of(seen), line, _cures(seen, line))


def _cures(seen: Nonfinite, line: Culprit | None) -> tuple[Cure, ...]:
    edge = seen.event.edge or next((slope.op for slope in seen.event.slopes), "") or seen.event.op
    advice = next((words for key, words in _ADVICE if key in edge), "keep what goes in away from where it is undefined")
    how = _diff(line.code, edge) if line is not None and line.code else ""
    return (Cure(advice, how, "equivalent"),)


def _diff(code: str, edge: str) -> str:
    repaired = repaired_line(code, edge)
    return f"- {code}\n+ {repaired}" if repaired else ""
