"""Ranks that disagree on the next collective.

What it sees: a hung run that waits in torch.distributed, gloo, NCCL, Horovod or MPI, where each of its ranks stands
and how many steps it made; or a rank whose wait ended with a timeout or a closed connection, while another had left or
stood elsewhere.
Why it matters: one rank that left the loop early or took another branch stops all the others, and the error is raised
on one that did nothing wrong.
May be confused with: a slow rank, which still comes; a network that is down; a rank that raised or was killed first,
which is told as that.
How sure: established when the frames say so and nothing moves on this machine; supported when only the error of the
rank that waited, and that another was gone, are known.
Cure: the same number of batches on every rank (drop_last, join); collectives outside of `if rank == 0`.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.raised import culprit_frame, message_of, raised_at_end
from holter.diagnosis.hang.blocking import Blocked, blocked_in
from holter.diagnosis.hang.ranks import PEER_LOST, left_early, let_in_alone, ranks_of, steps_evidence
from holter.diagnosis.hang.stalls import stacks_of
from holter.finding import Cure, Ending, Evidence, Finding, Grade

CAUSE = "hang.collective"

_EVEN = Cure("give every rank the same number of steps (drop_last=True, or the Join context)", "", "equivalent")
_ALL = Cure("let all ranks make this call, outside of the `if` that asks for the rank")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the collective that the run waits in, and the rank that is not there."""
    found = blocked_in(record, ending)
    if found is not None and found.detail == "collective":
        return Finding(CAUSE, found.grade, found.claim, found.evidence, found.culprit, _cures(record, found))
    return _gave_up(record, ending)


def _cures(record: RecordLike, found: Blocked) -> tuple[Cure, ...]:
    ranks = ranks_of(record, stacks_of(record, ("stall", "attach")))
    mine = next((rank for rank in ranks if rank.frame is not None and rank.frame == found.line), None)
    return (_ALL,) if mine is not None and let_in_alone(record, mine) else (_EVEN,)


def _gave_up(record: RecordLike, ending: Ending) -> Finding | None:
    """Tell a rank whose wait for the others ended with an error of its own."""
    if ending.kind not in ("exception", "hung"):
        return None
    raised = raised_at_end(record)
    if raised is None or not PEER_LOST.search(message_of(raised)):
        return None
    ranks = ranks_of(record, stacks_of(record, ("stall", "attach")))
    mine = next((rank for rank in ranks if rank.pid == raised.pid), None)
    if mine is None or len(ranks) < 2:
        return None
    gone = left_early(record, ranks, raised.pid)
    elsewhere = next((rank for rank in ranks if rank is not mine and rank.frame is not None and not rank.raised), None)
    grade: Grade = "supported"
    if elsewhere is not None:
        where = f"{elsewhere.name} stood at {elsewhere.place}"
        grade = "established"
    elif gone is not None:
        where = f"{gone.name} had left after {gone.steps:,} steps"
    else:
        where, grade = "what the others did could not be seen", "hypothesis"
    frame = culprit_frame(raised)
    at = f" at {frame.short}" if frame is not None else ""
    claim = f"{mine.name} waited{at} for the other ranks, which did not come: {where}"
    evidence = (Evidence("exception", raised.headline[:300], raised.when), *steps_evidence(ranks))
    return Finding(CAUSE, grade, claim, evidence, frame.culprit if frame else None, (_EVEN,))
