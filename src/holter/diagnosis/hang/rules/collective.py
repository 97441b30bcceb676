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

import re
from collections.abc import Sequence
from dataclasses import replace

from holter.diagnosis.core.frames import Frame, culprit_on, short_path
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import PEER_LOST
from holter.diagnosis.ending.raised import culprit_frame, message_of, raised_at_end
from holter.diagnosis.ending.tracebacks import Raised, printed_text
from holter.diagnosis.hang.blocking import Blocked, blocked_in
from holter.diagnosis.hang.ranks import (
    Disagreement,
    Rank,
    at_fault,
    caught_by_one,
    left_early,
    let_in_alone,
    ranks_of,
    steps_evidence,
    way_past,
)
from holter.diagnosis.hang.stalls import stacks_of
from holter.diagnosis.ranks.job import job_of, ranks_in_words, ranks_of_the_other_node, world_of
from holter.diagnosis.ranks.rendezvous import Rendezvous, rendezvous_of
from holter.finding import Culprit, Cure, Ending, Evidence, Finding, Grade
from holter.record.events.agent import ExitCalled
from holter.units import duration

CAUSE = "hang.collective"
_LATE_START_S = 60.0
_MISMATCH = re.compile(
    r"op\.preamble\.length <= op\.nbytes\. (?P<got>\d+) vs (?P<wanted>\d+)|"
    r"Detected mismatch between collectives on ranks[^\n]{0,200}|collective mismatch in your code"
)

_EVEN = Cure("give every rank the same number of steps (drop_last=True, or the Join context)", "", "equivalent")
_ALL = Cure("let all ranks make this call, outside of the `if` that asks for the rank")


def _come(name: str) -> Cure:
    return Cure(
        f"see why {name} does not go on from that line; all ranks have to make the same calls in the same order"
    )


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the collective that the run waits in, and the rank that is not there."""
    met = rendezvous_of([record])
    if met is not None:
        return not_met(met, ending)
    found = blocked_in(record, ending)
    if found is not None and found.detail == "collective":
        ranks = ranks_of(record, stacks_of(record, ("stall", "attach")))
        failed = caught_by_one(record, ranks)
        if failed is not None:
            return _after_an_error(found, failed)
        rank, host = found.number, found.rank.host if found.rank is not None else ""
        if "other nodes" in found.words:
            return _nodes_missing(record, found)
        if found.rank is not None:
            claim, culprit = _left_out(record, found.rank, ranks, found.claim, found.culprit)
            return Finding(CAUSE, found.grade, claim, found.evidence, culprit, _cures(record, found), None, rank, host)
        cures = _cures(record, found)
        return Finding(CAUSE, found.grade, found.claim, found.evidence, found.culprit, cures, rank=rank, host=host)
    return _mismatch(record, ending) or _gave_up(record, ending)


def _caught(failed: tuple[Rank, str, Frame | None]) -> str:
    at = f" at {failed[2].place}" if failed[2] is not None else ""
    return f"; {failed[0].name} had caught {failed[1]}{at} and gone on, so that it left out calls"


def _after_an_error(found: Blocked, failed: tuple[Rank, str, Frame | None]) -> Finding:
    """Tell that one rank caught an error within a step, and with it left out what the others wait for."""
    rank, _, frame = failed
    culprit = frame.culprit if frame is not None else found.culprit
    cure = Cure("let the error end the run, or have all ranks leave out that step")
    number = int(rank.number) if rank.number else None
    claim = found.claim + _caught(failed)
    return Finding(CAUSE, found.grade, claim, found.evidence, culprit, (cure,), rank=number, host=rank.host)


def _nodes_missing(record: RecordLike, found: Blocked) -> Finding:
    """Tell torchrun's wait for its other nodes; with two of them it is known which ranks those would be."""
    absent = ranks_of_the_other_node(record)
    claim = found.claim + (f": {ranks_in_words(absent)} would run there" if absent else "")
    cure = Cure("start the same command on each node, with its own --node_rank; see that the address can be reached")
    first = absent[0] if absent else None
    return Finding(CAUSE, found.grade, claim, found.evidence, None, (cure,), rank=first)


def _left_out(
    record: RecordLike, guilty: Rank, ranks: list[Rank], claim: str, culprit: Culprit | None
) -> tuple[str, Culprit | None]:
    """Name the line on which a rank went past the call that the others wait in, where there is but one."""
    others = [rank for rank in ranks if rank.waits and rank.number != guilty.number]
    past = way_past(record, others[0]) if others and (guilty.waits or guilty.gone) else None
    if past is None or let_in_alone(record, guilty):
        return claim, culprit
    return f"{claim}; the one way past {others[0].place} is {past.place}", past.culprit


def _cures(record: RecordLike, found: Blocked) -> tuple[Cure, ...]:
    if found.rank is not None and not found.rank.waits:
        return (_come(found.rank.name),)
    ranks = ranks_of(record, stacks_of(record, ("stall", "attach")))
    lines = (found.line, found.to_change)
    mine = [rank for rank in ranks if rank.frame is not None and rank.frame in lines]
    return (_ALL,) if any(let_in_alone(record, rank) for rank in mine) else (_EVEN,)


def _mismatch(record: RecordLike, ending: Ending) -> Finding | None:
    """Tell ranks whose calls did not fit together, so that gloo ended one of them with an abort or an error."""
    if ending.kind not in ("crashed", "exception") or world_of(record) < 2:
        return None
    return mismatch_between([record])


def mismatch_between(records: Sequence[RecordLike]) -> Finding | None:
    """The same over the records of a job: the rank whom the data did not fit need not be the one at fault."""
    said = None
    for record in records:
        message = message_of(raised_at_end(record))
        said = said or _MISMATCH.search(printed_text(record)) or _MISMATCH.search(message)
    if said is None:
        return None
    found = [
        replace(rank, record=record)
        for record in records for rank in ranks_of(record, stacks_of(record, ("fatal",))) if rank.pid > 0
    ]  # fmt: skip
    found.sort(key=lambda rank: rank.number.zfill(6))
    ranks = [rank for rank in found if rank.frame is not None]
    guilty = at_fault(records[0], ranks) if len({rank.place for rank in ranks}) > 1 else None
    failed = next((one for record in records if (one := caught_by_one(record, found)) is not None), None)
    stood = "; ".join(f"{rank.name} was at {rank.place}" for rank in ranks[:4])
    sizes = f" ({said['got']} bytes came where {said['wanted']} were due)" if said["got"] else ""
    claim = f"the ranks called collectives that do not fit together{sizes}" + (f": {stood}" if stood else "")
    if failed is not None:
        guilty = replace(failed[0], frame=failed[2] or failed[0].frame)
        claim += _caught(failed)
    shown = guilty or (ranks[0] if ranks else None)
    culprit = shown.frame.culprit if shown is not None and shown.frame is not None else None
    peers = [rank for rank in ranks if guilty is not None and rank.number != guilty.number]
    if guilty is not None and failed is None and peers and not let_in_alone(records[0], guilty):
        past = way_past(records[0], peers[0])
        if past is not None:
            claim, culprit = f"{claim}; the one way past {peers[0].place} is {past.place}", past.culprit
    number = int(guilty.number) if guilty is not None and guilty.number else None
    evidence = (Evidence("gloo", said[0][:300]), *steps_evidence(ranks))
    order = Cure("all ranks have to make the same calls in the same order, with tensors of the same size")
    host = guilty.host if guilty is not None else ""
    return Finding(CAUSE, "established", claim, evidence, culprit, (order,), rank=number, host=host)


def _gave_up(record: RecordLike, ending: Ending) -> Finding | None:
    """Tell a rank whose wait for the others ended with an error of its own."""
    if ending.kind not in ("exception", "hung"):
        return None
    raised = raised_at_end(record)
    if raised is None or not PEER_LOST.search(message_of(raised)):
        return None
    ranks = ranks_of(record, stacks_of(record, ("stall", "attach")))
    mine = next((rank for rank in ranks if rank.pid == raised.pid), None)
    if mine is None or max(len(ranks), world_of(record)) < 2:
        return None
    if len(ranks) < 2:
        return _lost_a_peer_elsewhere(record, mine, raised)
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
    blamed = elsewhere or gone
    rank = int(blamed.number) if blamed is not None and blamed.number else None
    frame = culprit_frame(raised)
    at = f" at {frame.short}" if frame is not None else ""
    claim = f"{mine.name} waited{at} for the other ranks, which did not come: {where}"
    evidence = (Evidence("exception", raised.headline[:300], raised.when), *steps_evidence(ranks))
    exits = [event for event in record.of(ExitCalled) if gone is not None and event.pid == gone.pid and event.file]
    if elsewhere is None and exits:
        called = culprit_on(exits[-1])
        claim += f": it called exit at {short_path(exits[-1].file)}:{exits[-1].line}"
        return Finding(CAUSE, grade, claim, evidence, called, (_EVEN,), rank=rank)
    past = way_past(record, replace(mine, frame=frame)) if gone is not None and elsewhere is None and frame else None
    if past is not None:
        claim += f"; the one way past that line is {past.place}"
        return Finding(CAUSE, grade, claim, evidence, past.culprit, (_EVEN,), rank=rank)
    own = elsewhere.frame if elsewhere is not None and elsewhere.frame is not None else frame
    return Finding(CAUSE, grade, claim, evidence, own.culprit if own else None, (_EVEN,), rank=rank)


def _lost_a_peer_elsewhere(record: RecordLike, mine: Rank, raised: Raised) -> Finding:
    """Tell a rank whose peers have records of their own that the cause is in one of those."""
    frame = culprit_frame(raised)
    at = f" at {frame.short}" if frame is not None else ""
    claim = (
        f"{mine.name} lost another rank{at}: that one ended or left first, and the cause is in its own record, not here"
    )
    key = job_of(record).key
    cure = Cure("ask for one verdict on all ranks of the job", f"holter why --job {key}" if key else "holter why A B")
    evidence = (Evidence("exception", raised.headline[:300], raised.when),)
    return Finding(CAUSE, "supported", claim, evidence, frame.culprit if frame else None, (cure,))


def not_met(met: Rendezvous, ending: Ending) -> Finding | None:
    """Tell who came to the rendezvous and who did not."""
    if ending.kind in ("completed", "oom-killed"):
        return None
    came = f"{ranks_in_words(met.came)} of {met.world}" if met.came else "a rank"
    stands = f", which stands at {met.stands.place}" if met.stands is not None else ""
    claim = (
        f"{came} waited in init_process_group at {met.at} for {duration(met.waited)}: "
        f"{ranks_in_words(met.absent)} never came{stands}"
    )
    # While it is on the others may only be slow to import.
    grade: Grade = "hypothesis" if ending.kind == "running" and met.waited < _LATE_START_S else "established"
    culprit = met.stands.culprit if met.stands is not None else culprit_on(met.first)
    cures = (
        Cure(f"see why {ranks_in_words(met.absent)} did not start, or start as many processes as the world size says"),
    )
    evidence = (Evidence("came", ranks_in_words(met.came)), Evidence("never came", ranks_in_words(met.absent)))
    host = met.record.facts.host if met.stands is not None else ""
    return Finding(CAUSE, grade, claim, evidence, culprit, cures, rank=met.absent[0], host=host)


def finding_between(between: Disagreement, ranks: list[Rank], evidence: tuple[Evidence, ...]) -> Finding:
    """Tell what ranks of several records disagree on."""
    waiting = next(rank for rank in ranks if rank.waits and rank is not between.guilty)
    guilty = between.guilty or waiting
    claim = f"{waiting.name} waits for the other ranks in {waiting.collective} at {waiting.place}{between.words}"
    culprit = guilty.frame.culprit if guilty.frame is not None else None
    if guilty.record is not None:
        claim, culprit = _left_out(guilty.record, guilty, ranks, claim, culprit)
    is_alone = guilty.record is not None and let_in_alone(guilty.record, guilty)
    number = int(guilty.number) if guilty.number and between.guilty is not None else None
    cures = (_come(guilty.name),) if not guilty.waits else (_ALL,) if is_alone else (_EVEN,)
    return Finding(CAUSE, "established", claim, evidence, culprit, cures, rank=number, host=guilty.host)
