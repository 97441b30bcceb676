"""Ranks that disagree on the next collective.

What it sees: a hung run that waits in torch.distributed, gloo, NCCL, Horovod or MPI.
Why it matters: one rank that left the loop early or took another branch stops all the others.
May be confused with: a slow rank, which still comes; a network that is down.
How sure: established when the frames say so and nothing moves on this machine; who never came is on the other ranks.
Cure: the same number of batches on every rank (drop_last, join).
"""

from __future__ import annotations

from holter.diagnosis.blocking import blocked_in
from holter.diagnosis.rule import RecordLike
from holter.finding import Cure, Ending, Finding

CAUSE = "hang.collective"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the collective that the run waits in."""
    found = blocked_in(record, ending)
    if found is None or found.detail != "collective":
        return None
    cures = (Cure("give every rank the same number of steps (drop_last=True, or the Join context)", "", "equivalent"),)
    return Finding(CAUSE, found.grade, found.claim, found.evidence, found.culprit, cures)
