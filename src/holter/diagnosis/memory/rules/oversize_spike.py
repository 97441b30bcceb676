"""One step needed far more memory than all before it.

What it sees: lack of memory after many good steps on a flat curve, or in a batch far larger than all before it.
Why it matters: one long sequence or one large matrix ends a run that had been fine for hours.
May be confused with: a leak, whose curve rises all along; other programs that took the memory.
How sure: supported after more than 20 steps on a flat curve, or where the batch was seen; else a hypothesis.
Cure: cap or bucket the lengths, work in chunks.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.exhaustion import exhaustion_of
from holter.diagnosis.memory.large_batch import large_batch_of
from holter.diagnosis.memory.next_commands import next_commands
from holter.finding import Cure, Ending, Finding

CAUSE = "oversize.spike"
YIELDS_TO = ("fragmentation", "leak", "oversize.neighbour")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say how flat the curve was, and what was asked for at the end."""
    found = exhaustion_of(record, ending)
    if found is None or found.shape != "spike":
        return None
    large = large_batch_of(record)
    if large is not None:
        by_length = (
            Cure("cap the length of a sample before it is padded, and look at the long one", "", "changed"),
            Cure("or make batches of samples of like length, by a budget of tokens", "", "equivalent"),
            *next_commands(record),
        )
        culprit = large.padded_by or (found.frame.culprit if found.frame is not None else None)
        return Finding(CAUSE, found.grade, found.words, found.evidence, culprit, by_length)
    cures = (
        Cure("do that work in chunks, in smaller batches", "", "equivalent"),
        Cure("or cap and bucket the lengths of samples", "", "changed"),
        *next_commands(record),
    )
    culprit = found.frame.culprit if found.frame is not None else None
    what = "the validation" if found.progress.phase == "validation" else "one step"
    claim = f"{what} needed far more than the steps before: {found.words}"
    return Finding(CAUSE, found.grade, claim, found.evidence, culprit, cures)
