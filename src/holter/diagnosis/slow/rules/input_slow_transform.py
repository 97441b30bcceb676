"""Work on each sample that takes longer than the step itself.

What it sees: steps that spend 40 % and more of the training waiting for data, while whoever makes the data (the
trainer itself, its workers, a thread of tf.data) was met computing in a line of the user's.
Why it matters: the model, and the GPU, stand still while Python decodes and augments.
May be confused with: toy loops where putting a small batch together takes half of a step of a millisecond; want of
memory, which makes everything wait; data that come from a slow disk or network, where nobody computes.
How sure: established when the wait was measured, is most of the step, and the line was met again and again; else
supported.
Cure: more workers for the cores that there are, tf.data's parallel map, or the work done once and kept.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.input_bound import input_finding
from holter.finding import Ending, Finding

CAUSE = "input-bound.slow-transform"
YIELDS_TO = ("thrash", "hang", "cpu.oversubscribed")


def examine(record: RecordLike, ending: Ending) -> Finding | None:  # noqa: ARG001 - the shape of a rule
    """Name the line that makes the samples, and how much of the step waits for it."""
    return input_finding(record, "slow-transform", "{who} make{s} samples more slowly than the step takes them{where}")
