"""The ranks of one training: where each stands, which collective it has come to, and whom the others wait for."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from holter.diagnosis.core.evidence import roles
from holter.diagnosis.core.frames import Frame, frames_of, last_user_frame
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import PEER_LOST
from holter.diagnosis.hang.stalls import Stack, stacks_of
from holter.diagnosis.hang.waits import collective_name, in_collective
from holter.diagnosis.ranks.job import rank_numbers, ranks_in_words
from holter.facts.collective import signature
from holter.finding import Evidence
from holter.record.events.agent import StepError, UncaughtException
from holter.record.events.ranks import Collective, Collectives, Peers
from holter.record.events.recorder import ProcessGone
from holter.record.events.timeline import Sample, StepWindow
from holter.source.lines import tree_of
from holter.source.ways_past import ways_past


@dataclass(frozen=True)
class Rank:
    """One rank: its number, its steps, and where it stood when it was last looked at."""

    pid: int
    number: str
    steps: int = 0
    frame: Frame | None = None
    called_from: tuple[Frame, ...] = ()  # of the user's own
    collective: str = ""  # that it waits in
    raised: str = ""
    begun: int | None = None  # collectives, in all groups
    open: Collective | None = None  # the first that it has begun and that is not done
    host: str = ""
    groups: int | None = None  # that it has made
    gone: bool = False  # before any rank was looked at
    record: RecordLike | None = field(default=None, compare=False, repr=False)  # of several, the one that it is in

    @property
    def name(self) -> str:
        if not self.number:
            return f"pid {self.pid}"
        return f"rank {self.number} on {self.host}" if self.pid < 0 else f"rank {self.number}"

    @property
    def place(self) -> str:
        return self.frame.place if self.frame is not None else ""

    @property
    def waits(self) -> bool:
        return bool(self.collective) and self.frame is not None


@dataclass(frozen=True)
class Disagreement:
    """What the ranks disagree on: the rank to blame, what is wrong with it, and the rest of a sentence."""

    kind: str  # `absent`, `behind`, `other`, `left`, `same`
    words: str
    guilty: Rank | None = None


def ranks_of(record: RecordLike, stacks: list[Stack]) -> list[Rank]:
    """Give the trainers that a launcher numbered, or those that were looked at, in the order of their numbers."""
    role_of, numbers = roles(record), rank_numbers(record)
    steps, begun = _how_far(record)
    looks = {look.pid: look for look in record.of(Collectives) if look.begun == begun.get(look.pid or 0, look.begun)}
    trainers = {pid for pid in (*role_of, *numbers) if role_of.get(pid) == "trainer" or pid in numbers}
    seen = {stack.pid: stack for stack in stacks if stack.pid and (stack.role == "trainer" or stack.pid in trainers)}
    # A rank whose peer was gone may be ended by its launcher before its error has reached the interpreter's end.
    lost = [event for event in record.of(StepError) if PEER_LOST.search(event.message)]
    raised: dict[int | None, StepError | UncaughtException] = {event.pid: event for event in lost}
    raised |= {event.pid: event for event in record.of(UncaughtException)}
    began = min((look.since or look.m for look in looks.values() if look.rows), default=None)
    gone = {event.pid: event.m for event in record.of(ProcessGone)}
    found = []
    known = {pid for pid in numbers if role_of.get(pid) == "trainer" or pid in looks or pid in raised}
    for pid in sorted({pid for pid in (*seen, *known) if pid is not None}):
        stack, failed, look = seen.get(pid), raised.get(pid), looks.get(pid)
        mine = stack.user_frames if stack is not None else ()
        if not mine and look is not None:
            mine = tuple(frame for frame in frames_of(look.frames) if frame.user)
        frame = mine[0] if mine else None
        waits_in = next((one for one in look.rows if one.done is False), None) if look is not None else None
        name = f"{waits_in.op}()" if waits_in is not None and waits_in.op else ""
        inside = stack.inside if stack is not None else ()
        if in_collective(inside):
            # What was called says more than what it came to: `barrier()` is an all_reduce on gloo.
            called = collective_name(inside)
            name = called if called != "a collective call" or not name else name
        message = failed.message if failed is not None else ""
        if failed is not None and PEER_LOST.search(message):
            mine = tuple(one for one in reversed(frames_of(failed.frames)) if one.user) or mine
            frame = mine[0] if mine else None
        number = str(numbers[pid]) if pid in numbers else ""
        early = pid in gone and began is not None and gone[pid] < began + 2
        found.append(
            Rank(pid, number, steps.get(pid, 0), frame, mine[1:], name, message, begun.get(pid), waits_in,
                 record.facts.host, look.groups if look is not None else None, early)
        )  # fmt: skip
    here = {rank.number for rank in found}
    found += [rank for rank in _elsewhere(record) if rank.number not in here]
    return sorted(found, key=lambda rank: (rank.number.zfill(6), rank.pid))


def _elsewhere(record: RecordLike) -> list[Rank]:
    """Give the ranks of other machines, as far as they told this one where they stand."""
    last = {event.pid: event for event in record.of(Peers) if not event.because}
    found = {}
    for event in sorted(last.values(), key=lambda event: event.m):
        for row in event.rows:
            if row.rank is None or not row.stands:
                continue
            waits_in = Collective(row.group, row.number, row.op, row.sizes, "", False) if row.op else None
            frame = Frame(row.file, row.line or 0, row.function, row.code, True) if row.file else None
            name = f"{row.op}()" if row.op else ""
            found[row.rank] = Rank(
                -1 - row.rank, str(row.rank), row.step or 0, frame, (), name, "", row.begun, waits_in, host=row.host
            )
    return list(found.values())


def all_ranks(record: RecordLike) -> list[Rank]:
    """Give the ranks with the best look there is at each."""
    return ranks_of(record, stacks_of(record, ("stall", "attach")) or stacks_of(record, ("slow",)))


def _how_far(record: RecordLike) -> tuple[dict[int, int], dict[int, int]]:
    """Give the steps and the collectives of each process."""
    steps: dict[int, int] = {}
    begun: dict[int, int] = {}
    for sample in record.of(Sample):
        for state in sample.agents:
            pid = state.pid or 0
            steps[pid] = max(steps.get(pid, 0), state.step or 0)
            if state.collective:
                begun[pid] = max(begun.get(pid, 0), state.collective)
    for line in record.of(StepWindow):
        steps[line.pid or 0] = max(steps.get(line.pid or 0, 0), line.last or 0)
    for look in record.of(Collectives):
        begun[look.pid or 0] = max(begun.get(look.pid or 0, 0), look.begun or 0)
    return steps, begun


def disagreement(record: RecordLike, found: list[Rank]) -> Disagreement:
    """Say where the ranks stand against each other, and which of them the others wait for."""
    waiting = [rank for rank in found if rank.waits and not rank.gone]
    away = [rank for rank in found if not rank.waits and rank.frame is not None and not rank.raised and not rank.gone]
    left = [rank for rank in found if rank.gone and not rank.raised]
    if not waiting:
        return Disagreement("same", "")
    at = _numbered(waiting[0])
    if left:
        return Disagreement("left", f"; {_named(left)} had ended before, after {left[0].steps:,} steps", left[0])
    if away:
        # Of several that are not there the one that has begun the fewest.
        guilty = min(away, key=lambda rank: rank.begun if rank.begun is not None else 1 << 60)
        others = [rank for rank in away if rank is not guilty]
        more = f", {_named(others)} at {others[0].place}" if others else ""
        return Disagreement("absent", f"; {guilty.name} never came to {at}: it stands at {guilty.place}{more}", guilty)
    return _between_waiting(record, waiting)


def _between_waiting(record: RecordLike, waiting: list[Rank]) -> Disagreement:
    """All of them wait, in calls that do not fit together, or all in the same one."""
    places = {(rank.collective, rank.frame.short if rank.frame else "") for rank in waiting}
    groups_made = sorted({rank.groups for rank in waiting if rank.groups is not None})
    if len(groups_made) > 1 and not any(rank.open for rank in waiting):
        # All ranks have to make all groups, those too that they are not in: then they wait for it at the next one.
        guilty = min(waiting, key=lambda rank: rank.groups if rank.groups is not None else 1 << 30)
        made = ", ".join(f"{rank.name} has made {rank.groups} groups" for rank in waiting[:4])
        return Disagreement("behind", f"; {made}: new_group() has to be called by all ranks", guilty)
    known = [rank for rank in waiting if rank.open is not None]
    signatures = {_signature(rank) for rank in waiting}
    behind = [rank.open.number or 0 for rank in known if rank.open is not None]
    groups = {rank.open.group for rank in known if rank.open is not None}
    is_same = len(known) == len(waiting) and len(groups) == 1 and len(set(behind)) == 1
    if len(waiting) >= 2 and is_same and len(signatures) == 1 and len(places) == 1:
        words = f"; all ranks wait in {_numbered(waiting[0])}: the network or a device does not answer"
        return Disagreement("same", words)
    if len(waiting) < 2 or (len(places) < 2 and len(signatures) < 2):
        return Disagreement("same", "")
    said = ", ".join(f"{rank.name} waits in {_numbered(rank)} at {rank.place}" for rank in waiting[:3])
    if len(known) == len(waiting) and len(groups) == 1 and len(set(behind)) > 1:
        guilty = min(known, key=lambda rank: rank.open.number or 0 if rank.open is not None else 0)
        return Disagreement("behind", f"; {said}: they never meet", guilty)
    return Disagreement("other", f"; {said}: they never meet", at_fault(record, waiting))


def _signature(rank: Rank) -> tuple[str, ...]:
    if rank.open is None:
        return (rank.collective, rank.frame.short if rank.frame is not None else "")
    called = rank.collective if "barrier" in rank.collective else ""
    return (rank.open.group, *signature(rank.open.op, rank.open.sizes), called)


def _numbered(rank: Rank) -> str:
    number = f" #{rank.open.number:,}" if rank.open is not None and rank.open.number else ""
    return f"{rank.collective}{number}"


def _named(found: Sequence[Rank]) -> str:
    return ranks_in_words([rank.number or f"pid {rank.pid}" for rank in found])


def steps_evidence(found: list[Rank]) -> tuple[Evidence, ...]:
    """Give how many steps and collectives each rank had made, where they differ or some stand elsewhere."""
    if len(found) < 2:
        return ()
    steps = ", ".join(f"{rank.name} made {rank.steps:,}" for rank in found[:8])
    begun = [rank for rank in found if rank.begun is not None]
    counted = ", ".join(f"{rank.name} had begun {rank.begun:,}" for rank in begun[:8])
    return (
        Evidence("steps", steps),
        *((Evidence("collectives", counted),) if len({rank.begun for rank in begun}) > 1 else ()),
    )


def at_fault(record: RecordLike, waiting: list[Rank]) -> Rank | None:
    """Choose the rank whose call is the odd one: the minority; a call that only some are let into; an early end.

    Of two ranks in calls that do not fit together none is accused where nothing tells which of them went astray.
    """
    counts = Counter(map(_signature, waiting))
    rarest = min(counts.values(), default=0)
    few = [rank for rank in waiting if counts[_signature(rank)] == rarest]
    if len(few) < len(waiting) and len(few) * 2 < len(waiting):
        return few[0]
    alone = [rank for rank in waiting if let_in_alone(record, rank)]
    if len(alone) == 1:
        return alone[0]
    # One that waits at a barrier has come to the end of its steps, of which the others want more.
    ended = [rank for rank in waiting if "barrier" in rank.collective]
    if ended and len(ended) < len(waiting):
        return ended[-1]
    # Where one line alone leads past the call of one of two, the other has taken it.
    passed = [rank for rank in waiting if way_past(record, rank) is not None]
    return next(rank for rank in waiting if rank is not passed[0]) if len(waiting) == 2 and len(passed) == 1 else None


def caught_by_one(record: RecordLike, found: list[Rank]) -> tuple[Rank, str, Frame | None] | None:
    """Give the only rank in which an error left a step and was caught, what it was, and where it was raised."""
    # That a peer was gone is no error of its own.
    caught = [event for event in record.of(StepError) if not PEER_LOST.search(event.message)]
    last = {event.pid: event for event in caught}
    mine = [rank for rank in found if rank.pid in last]
    if len(mine) != 1 or len(found) < 2:
        return None
    event = last[mine[0].pid]
    return mine[0], event.type, last_user_frame(frames_of(event.frames))


def way_past(record: RecordLike, waiting: Rank) -> Frame | None:
    """Give the one line that leads past the call which a rank waits in; None where there is none, or several."""
    frames = (waiting.frame, *waiting.called_from) if waiting.frame is not None else ()
    for frame in frames:
        lines = (waiting.record or record).source(frame.file)
        found = ways_past(lines, frame.line)
        if len(found) == 1:
            return Frame(frame.file, found[0], frame.function, lines[found[0] - 1].strip(), True)
        if found:
            return None
    return None


def let_in_alone(record: RecordLike, rank: Rank) -> bool:
    """Tell whether a rank came to its line, or to a call that led there, through an `if` that asks which rank it is."""
    frames = (rank.frame, *rank.called_from) if rank.frame is not None else ()
    record = rank.record or record
    return any(_only_for_one(record.source(frame.file), frame.line) for frame in frames)


def _only_for_one(lines: Sequence[str], line: int) -> bool:
    tree = tree_of(lines)
    if tree is None:
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and _is_within(_branch_of_few(node), line):
            parts = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
            if any(map(_asks_for_the_first, parts)):
                return True
    return False


def _branch_of_few(test: ast.If) -> list[ast.stmt]:
    """`if rank == 0:` lets one in, `if rank != 0:` all but one."""
    compares = test.test if isinstance(test.test, ast.Compare) else None
    return test.orelse if compares is not None and isinstance(compares.ops[0], ast.NotEq) else test.body


def _is_within(statements: list[ast.stmt], line: int) -> bool:
    return any(one.lineno <= line <= (one.end_lineno or one.lineno) for one in statements)


def _asks_for_the_first(test: ast.expr) -> bool:
    """`x == 0` of a number that is not computed, as each tenth step's is; or what the frameworks call it."""
    names = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
    names |= {n.attr for n in ast.walk(test) if isinstance(n, ast.Attribute)}
    if any("rank" in name.lower() or "main_process" in name or "global_zero" in name for name in names):
        return True
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    zero = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value == 0
    return zero and isinstance(test.left, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))


def left_early(record: RecordLike, found: list[Rank], raiser: int | None) -> Rank | None:
    """Give the rank that went in order, with no error of its own, when another found its connection closed."""
    gone = {event.pid for event in record.of(ProcessGone)}
    mine = next((rank for rank in found if rank.pid == raiser), None)
    for rank in found:
        short = mine is None or 0 < rank.steps <= mine.steps
        if rank.pid != raiser and not rank.raised and rank.pid in gone and short:
            return rank
    return None
