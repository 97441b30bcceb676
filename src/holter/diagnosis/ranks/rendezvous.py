"""Ranks that came to `init_process_group` and met nobody: who came, who did not, and for how long they waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holter.diagnosis.core.frames import Frame
from holter.diagnosis.core.progress import last_line
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import ended_at
from holter.diagnosis.hang.stalls import stacks_of
from holter.diagnosis.ranks.job import rank_numbers, world_of
from holter.record.events.ranks import RankCame, RankJoined
from holter.record.events.recorder import SignalReceived

SHORTEST_S = 20.0  # a rank that imports for longer than the others is late by less


@dataclass(frozen=True)
class Rendezvous:
    """The first rank that waits, its line, and the numbers of those that came and of those that did not."""

    first: RankCame
    came: tuple[int, ...]
    absent: tuple[int, ...]
    world: int
    waited: float
    stands: Frame | None  # where the first absent rank stands, if it runs where it can be seen
    record: RecordLike  # of the rank that is blamed, else of the first

    @property
    def at(self) -> str:
        return f"{self.first.file.rpartition('/')[2]}:{self.first.line}"


def rendezvous_of(records: Sequence[RecordLike]) -> Rendezvous | None:
    """Find ranks that came and never met the others, over the records of one job."""
    came = [(record, event) for record in records for event in record.of(RankCame) if not _joined(record, event)]
    if not came:
        return None
    world = max(max(event.world or 0 for _, event in came), *(world_of(record) for record in records))
    numbers = {event.rank for _, event in came if event.rank is not None}
    met = {event.rank for record in records for event in record.of(RankJoined) if event.rank is not None}
    absent = sorted(set(range(world)) - numbers - met)
    waited = max(_until(record, event) - event.m for record, event in came)
    if world < 2 or waited < SHORTEST_S or not absent:
        return None
    first = came[0][1]
    for record in records:
        pids = {number: pid for pid, number in rank_numbers(record).items()}
        for stack in stacks_of(record, ("stall", "attach", "end", "slow")):
            if stack.pid == pids.get(absent[0]) and stack.user_frames:
                return Rendezvous(
                    first, tuple(sorted(numbers)), tuple(absent), world, waited, stack.user_frames[0], record
                )
    return Rendezvous(first, tuple(sorted(numbers)), tuple(absent), world, waited, None, came[0][0])


def _joined(record: RecordLike, event: RankCame) -> bool:
    return any(one.pid == event.pid and one.m >= event.m for one in record.of(RankJoined))


def _until(record: RecordLike, event: RankCame) -> float:
    """Give when the wait ended: somebody ended it, or it lasts on."""
    asked = [one.m for one in record.of(SignalReceived) if one.m > event.m]
    end = ended_at(record)
    return min([*asked, *([end] if end is not None else []), last_line(record)])
