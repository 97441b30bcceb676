"""Who is late: the rank that begins the same collectives after the others, by how much, in which phase and line.

All ranks wait for the last one at each collective, so their steps take equally long, and no step time shows whose fault
it is. When each began the same number does, also where the delay lies within backward.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from holter.diagnosis.core.frames import culprit_on
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ranks.job import rank_numbers, world_of
from holter.finding import Culprit
from holter.record.events.ranks import CollectiveTimes, LineSeen
from holter.record.events.timeline import StepWindow

_TOGETHER_S = 8.0  # looks of two ranks that far apart are of one moment
_FEWEST = 12  # numbers that both have
_MOST_OFTEN = 0.7  # of the numbers at which one rank is the last
_LATE_SHARE = 0.17  # of the time between two steps: a rank that is 1.3 times slower is late by 0.23 of it
_LATE_S = 0.003
_LOOKS = 2
_PHASES = ("data", "forward", "backward", "optimizer", "other")

Times = dict[tuple[str, int], float]


@dataclass(frozen=True)
class Look:
    """What all ranks told at one moment: who was last at how many numbers, by how much, and how long a round took."""

    rank: int
    last_at: int
    of: int
    late: float
    round: float
    m: float

    @property
    def is_late(self) -> bool:
        often = self.of >= _FEWEST and self.last_at >= _MOST_OFTEN * self.of
        return often and self.late >= max(_LATE_S, _LATE_SHARE * self.round)


@dataclass(frozen=True)
class Straggler:
    """The rank that is late at look after look."""

    rank: int
    record: RecordLike
    late: float  # seconds, the median
    round: float  # seconds between two steps
    last_at: int
    of: int
    looks: int
    looked: int
    phase: str  # in which it spends more than the others
    line: Culprit | None
    seen: float  # the share of its time on that line
    others_seen: float
    several_machines: bool

    @property
    def on_the_way(self) -> bool:
        """Tell a rank that spends its time as the others do: what it waits for comes later to it."""
        return not self.phase and self.line is None

    @property
    def sure(self) -> bool:
        return self.looks >= 3 and self.last_at >= 0.85 * self.of


def straggler_of(records: Sequence[RecordLike]) -> Straggler | None:
    """Find the rank that is late at most looks at which all ranks told their times."""
    told = [(record, event) for record in records for event in record.of(CollectiveTimes) if event.rank is not None]
    offsets = clock_offsets(records)
    looks = list(_looks(told, offsets))
    late = [look for look in looks if look.is_late]
    if len(late) < _LOOKS:
        return None
    of_each: dict[int, list[Look]] = defaultdict(list)
    for look in late:
        of_each[look.rank].append(look)
    rank, mine = max(of_each.items(), key=lambda item: len(item[1]))
    # A rank that is late now and then, and others at other times, is no straggler: their work differs.
    since = [look for look in looks if look.m >= mine[0].m - 1]
    if len(mine) < _LOOKS or len(mine) < 0.6 * len(since):
        return None
    record = next(record for record, event in told if event.rank == rank)
    line, seen, others = _line(told, rank)
    return Straggler(
        rank, record, median(look.late for look in mine), median(look.round for look in mine),
        sum(look.last_at for look in mine), sum(look.of for look in mine), len(mine), len(since),
        _phase(records, rank), line, seen, others, _on_several_machines(records),
    )  # fmt: skip


def _on_several_machines(records: Sequence[RecordLike]) -> bool:
    """Tell whether some ranks of the job run elsewhere than those of the first record."""
    hosts = {record.facts.host for record in records}
    here = {number for record in records for number in rank_numbers(record).values()}
    return len(hosts) > 1 or len(here) < max(world_of(record) for record in records)


def _looks(told: list[tuple[RecordLike, CollectiveTimes]], offsets: dict[int, float]) -> Iterable[Look]:
    """Put together what the ranks told at one moment, and say who was last."""
    world = max((world_of(record) for record, _ in told), default=1)
    placed = sorted(((event.m + offsets.get(id(record), 0.0), record, event) for record, event in told),
                    key=lambda item: item[0])  # fmt: skip
    while placed:
        first = placed[0][0]
        together: dict[int, tuple[float, RecordLike, CollectiveTimes]] = {}
        for item in [item for item in placed if item[0] < first + _TOGETHER_S]:
            together.setdefault(item[2].rank or 0, item)
        taken = {id(item[2]) for item in together.values()}
        placed = [item for item in placed if id(item[2]) not in taken]
        if len(together) < 2 or (len(together) < world and len(together) < 0.5 * world):
            continue
        times = {rank: _times(event, offsets.get(id(record), 0.0)) for rank, (_, record, event) in together.items()}
        look = _who_is_last(times, first)
        if look is not None:
            yield look


def _who_is_last(times: dict[int, Times], m: float) -> Look | None:
    common = sorted(set.intersection(*(set(one) for one in times.values())))
    if len(common) < _FEWEST:
        return None
    last: dict[int, int] = defaultdict(int)
    late: dict[int, list[float]] = {rank: [] for rank in times}
    for number in common:
        arrived = {rank: one[number] for rank, one in times.items()}
        slowest = max(arrived, key=lambda rank: arrived[rank])
        last[slowest] += 1
        for rank, at in arrived.items():
            # Against the middle of the others: one that is early for once does not make another late.
            others = median(other for peer, other in arrived.items() if peer != rank)
            late[rank].append(at - others)
    rank = max(last, key=lambda one: last[one])
    return Look(rank, last[rank], len(common), median(late[rank]), _round(times, common), m)


def _round(times: dict[int, Times], common: list[tuple[str, int]]) -> float:
    """Say how long a step takes: collectives that follow each other at once are of one."""
    one = next(iter(times.values()))
    at = [one[number] for number in common]
    gaps = sorted(after - before for before, after in itertools.pairwise(at) if after > before)
    if not gaps:
        return 0.0
    # An evaluation now and then is no step; the gaps between a step's own collectives are short against those between
    # two steps, which make up most of the time.
    usual = gaps[: max(1, int(0.97 * len(gaps)))]
    return sum(usual) / sum(gap >= 0.25 * usual[-1] for gap in usual)


def _times(event: CollectiveTimes, offset: float) -> Times:
    """Give when each number was begun, in seconds of the first record's clock."""
    found: Times = {}
    for run in event.times:
        if len(run) < 3 or not isinstance(run[1], int) or not isinstance(run[2], int):
            continue
        at, number = (event.base or 0.0) + offset + run[2] * 1e-6, run[1]
        found[(str(run[0]), number)] = at
        for gap in run[3:]:
            number += 1
            at += (gap if isinstance(gap, int) else 0) * 1e-6
            found[(str(run[0]), number)] = at
    return found


def _line(told: list[tuple[RecordLike, CollectiveTimes]], rank: int) -> tuple[Culprit | None, float, float]:
    """Find the line on which the late rank is seen more often than the others are."""
    mine, theirs = _shares(told, lambda number: number == rank), _shares(told, lambda number: number != rank)
    places = {(row.file, row.line): row for _, event in told if event.rank == rank for row in event.rows}
    more = {place: mine.get(place, 0.0) - theirs.get(place, 0.0) for place in places}
    if not more:
        return None, 0.0, 0.0
    best = max(more, key=lambda place: more[place])
    if more[best] < 0.08:
        return None, 0.0, 0.0
    row: LineSeen = places[best]
    return culprit_on(row), mine.get(best, 0.0), theirs.get(best, 0.0)


def _shares(
    told: list[tuple[RecordLike, CollectiveTimes]], wanted: Callable[[int | None], bool]
) -> dict[tuple[str, int | None], float]:
    seen: dict[tuple[str, int | None], float] = defaultdict(float)
    looks = 0
    for _, event in told:
        if wanted(event.rank):
            looks += event.looks or 0
            for row in event.rows:
                seen[row.file, row.line] += row.seen or 0
    return {place: count / looks for place, count in seen.items()} if looks else {}


def _phase(records: Sequence[RecordLike], rank: int) -> str:
    """Find the phase in which the late rank spends more of each step than the others do; "" where none shows it."""
    per_step: dict[int, dict[str, float]] = {}
    for record in records:
        for pid, number in rank_numbers(record).items():
            windows = [line for line in record.of(StepWindow) if line.pid == pid and line.n]
            n = sum(line.n or 0 for line in windows)
            if n:
                per_step[number] = {
                    name: sum(line.phases[name] if name != "other" else line.other or 0.0 for line in windows) / n
                    for name in _PHASES
                }
    mine = per_step.get(rank)
    others = [phases for number, phases in per_step.items() if number != rank]
    if mine is None or not others:
        return ""
    more = {name: mine[name] - median(phases[name] for phases in others) for name in _PHASES}
    best = max(more, key=lambda name: more[name])
    return best if more[best] > 0.05 * sum(mine.values()) else ""


def clock_offsets(records: Sequence[RecordLike]) -> dict[int, float]:
    """Give what has to be added to each record's monotonic clock to have the first one's.

    Two boots or machines have clocks of their own. All ranks come out of a step's last collective together, whoever was
    late before it: the ends of the same steps are the same moments.
    """
    first = records[0] if records else None
    if first is None:
        return {}
    offsets = {id(first): 0.0}
    for record in records[1:]:
        if record.facts.boot_id and record.facts.boot_id == first.facts.boot_id:
            offsets[id(record)] = 0.0
            continue
        known, mine = _step_ends(first), _step_ends(record)
        common = sorted(set(known) & set(mine))
        if len(common) >= 3:
            offsets[id(record)] = median(known[step] - mine[step] for step in common)
            continue
        # Without steps of both the wall clocks have to do.
        begin, other = first.facts, record.facts
        wall = (other.started or 0.0) - (begin.started or 0.0)
        offsets[id(record)] = (begin.mono or 0.0) + wall - (other.mono or 0.0)
    return offsets


def _step_ends(record: RecordLike) -> dict[int, float]:
    """Give when each step ended, as the looks at times have it, else as the windows have it."""
    found: dict[int, float] = {}
    for line in record.of(StepWindow):
        if line.last and line.n:
            found.setdefault(line.last, line.m)
    for event in record.of(CollectiveTimes):
        for pair in event.step_ends:
            if len(pair) == 2:
                found[int(pair[0])] = pair[1]
    return found
