"""The ranks of one training: where each stands, how far it came, and which of them the others wait for."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from holter.diagnosis.core.evidence import roles
from holter.diagnosis.core.frames import Frame, frames_of, last_user_frame
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.hang.stalls import Stack
from holter.diagnosis.hang.waits import collective_name, in_collective
from holter.finding import Evidence
from holter.record.events.agent import AgentHello, UncaughtException
from holter.record.events.recorder import ProcessGone
from holter.record.events.timeline import Sample, StepWindow
from holter.source.lines import tree_of

# What gloo, NCCL and their watchdogs say on a rank whose peers did not come, or went away.
PEER_LOST = re.compile(
    r"Connection closed by peer|Timed out waiting \d+ ?ms|Watchdog caught collective operation timeout|"
    r"wait timeout after \d+ms|gloo.{0,200}(?:Connection reset|Broken pipe|Socket closed|timed? ?out)|"
    r"NCCL.{0,200}(?:remote process exited|unhandled system error|timeout)|Socket Timeout",
    re.DOTALL,
)


@dataclass(frozen=True)
class Rank:
    """One rank: its number, its steps, and where it stood when it was last looked at."""

    pid: int
    number: str
    steps: int = 0
    frame: Frame | None = None
    called_from: tuple[Frame, ...] = ()  # of the user's own
    collective: str = ""
    raised: str = ""

    @property
    def name(self) -> str:
        return f"rank {self.number}" if self.number else f"pid {self.pid}"

    @property
    def place(self) -> str:
        return self.frame.place if self.frame is not None else ""


def ranks_of(record: RecordLike, stacks: list[Stack]) -> list[Rank]:
    """Give the trainers that a launcher numbered, or those that were looked at, in the order of their numbers."""
    role_of = roles(record)
    numbers: dict[int, str] = {}
    for event in record.of(AgentHello):
        if event.pid is not None and event.rank is not None:
            numbers[event.pid] = str(event.rank)
    steps: dict[int, int] = {}
    for sample in record.of(Sample):
        for state in sample.agents:
            steps[state.pid or 0] = max(steps.get(state.pid or 0, 0), state.step or 0)
    for line in record.of(StepWindow):
        steps[line.pid or 0] = max(steps.get(line.pid or 0, 0), line.last or 0)
    seen = {stack.pid: stack for stack in stacks if stack.pid and (stack.role or role_of.get(stack.pid)) == "trainer"}
    raised = {event.pid: event for event in record.of(UncaughtException)}
    found = []
    for pid in sorted(
        {*seen, *(pid for pid in numbers if role_of.get(pid) == "trainer")} - {None}, key=lambda p: p or 0
    ):
        if pid is None:
            continue
        stack, failed = seen.get(pid), raised.get(pid)
        mine = stack.user_frames if stack is not None else ()
        frame = mine[0] if mine else None
        inside = stack.inside if stack is not None else ()
        name = collective_name(inside) if in_collective(inside) else ""
        message = failed.message if failed is not None else ""
        if failed is not None and PEER_LOST.search(message):
            frame = last_user_frame(frames_of(failed.frames)) or frame
        found.append(Rank(pid, numbers.get(pid, ""), steps.get(pid, 0), frame, mine[1:], name, message))
    return sorted(found, key=lambda rank: (rank.number.zfill(6), rank.pid))


def disagreement(found: list[Rank]) -> str:
    """Say where the ranks stand against each other, as the end of a sentence."""
    waiting = [rank for rank in found if rank.collective and rank.frame is not None]
    absent = [rank for rank in found if not rank.collective and rank.frame is not None and not rank.raised]
    if absent:
        return f"; {absent[0].name} never came: it stands at {absent[0].place}"
    places = {(rank.collective, rank.frame.short if rank.frame else "") for rank in waiting}
    if len(waiting) >= 2 and len(places) >= 2:
        said = ", ".join(f"{rank.name} waits in {rank.collective} at {rank.place}" for rank in waiting[:3])
        return f"; {said}: they never meet"
    return ""


def steps_evidence(found: list[Rank]) -> tuple[Evidence, ...]:
    """Give how many steps each rank had made, where they differ or some stand elsewhere."""
    if len(found) < 2:
        return ()
    steps = ", ".join(f"{rank.name} made {rank.steps:,}" for rank in found[:8])
    return (Evidence("steps", steps),)


def at_fault(record: RecordLike, found: list[Rank]) -> Rank | None:
    """Choose the rank whose line is the odd one: a collective that only some ranks are let into, else an extra step."""
    waiting = [rank for rank in found if rank.collective and rank.frame is not None]
    if len({rank.frame.short for rank in waiting if rank.frame}) < 2:
        return waiting[0] if waiting else None
    for rank in waiting:
        if let_in_alone(record, rank):
            return rank
    # One that waits at a barrier has come to the end of its steps; the other wants more of them.
    return next((rank for rank in waiting if "barrier" not in rank.collective), waiting[0])


def let_in_alone(record: RecordLike, rank: Rank) -> bool:
    """Tell whether a rank came to its line, or to a call that led there, through an `if` that asks which rank it is."""
    frames = (rank.frame, *rank.called_from) if rank.frame is not None else ()
    return any(_only_for_one(record.source(frame.file), frame.line) for frame in frames)


def _only_for_one(lines: Sequence[str], line: int) -> bool:
    tree = tree_of(lines)
    if tree is None:
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and node.lineno < line <= (node.end_lineno or node.lineno):
            parts = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
            if any(map(_asks_for_the_first, parts)):
                return True
    return False


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
