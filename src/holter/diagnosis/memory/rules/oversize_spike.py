"""One step needed far more memory than all before it.

What it sees: lack of memory after many good steps on a flat curve.
Why it matters: one long sequence or one large matrix ends a run that had been fine for hours.
May be confused with: a leak, whose curve rises all along; other programs that took the memory.
How sure: supported after more than 20 steps on a flat curve; else a hypothesis.
Cure: cap or bucket the lengths, work in chunks.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.exhaustion import exhaustion_of
from holter.diagnosis.memory.next_commands import next_commands
from holter.finding import Cure, Ending, Finding

CAUSE = "oversize.spike"
YIELDS_TO = ("fragmentation", "leak", "oversize.neighbour")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say how flat the curve was, and what was asked for at the end."""
    found = exhaustion_of(record, ending)
    if found is None or found.shape != "spike":
        return None
    cures = (
        Cure("do that work in chunks, in smaller batches", "", "equivalent"),
        Cure("or cap and bucket the lengths of samples", "", "changed"),
        *next_commands(record),
    )
    culprit = found.frame.culprit if found.frame is not None else None
    what = "the validation" if found.progress.phase == "validation" else "one step"
    claim = f"{what} needed far more than the steps before: {found.words}"
    return Finding(CAUSE, found.grade, claim, found.evidence, culprit, cures)
