"""One step needs more memory than there is.

What it sees: want of memory within the first steps.
Why it matters: the run never had a chance at this batch size.
May be confused with: a model that does not fit even before the first step; a leak, which takes many steps.
How sure: supported when a step or two had been done or the allocator said what it was asked for; else a hypothesis.
Cure: smaller micro-batches with accumulation, mixed precision, activation checkpointing.
"""

from __future__ import annotations

from holter.diagnosis.exhaustion import exhaustion_of
from holter.diagnosis.rule import RecordLike
from holter.finding import Cure, Ending, Finding

CAUSE = "oversize.batch"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say in which step memory ran out, and how much there was."""
    found = exhaustion_of(record, ending)
    if found is None or found.shape != "batch":
        return None
    cures = (
        Cure("a smaller batch with gradient accumulation", "batch/2 with 2 accumulated steps", "equivalent"),
        Cure("activation checkpointing", "less memory, about a third more time", "equivalent"),
        Cure("mixed precision (bfloat16)", "", "changed"),
    )
    culprit = found.frame.culprit if found.frame is not None else None
    return Finding(CAUSE, found.grade, f"one step does not fit: {found.words}", found.evidence, culprit, cures)
