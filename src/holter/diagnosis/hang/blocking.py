"""What a hung run is blocked in, told from its stacks, its state and its use of the CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holter.diagnosis.core.evidence import last_processes
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import Frame
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.hang.lock_holder import holder_of
from holter.diagnosis.hang.ranks import Disagreement, Rank, disagreement, ranks_of, steps_evidence
from holter.diagnosis.hang.stalls import Stack, open_stall, stacks_of, stall_line, stalled_for, threshold
from holter.diagnosis.hang.waits import Wait, in_framework, kind_of_wait, target_of
from holter.diagnosis.memory.paging import paged_during
from holter.finding import Culprit, Ending, Evidence, Grade
from holter.record.events.recorder import Stall
from holter.units import duration


@dataclass(frozen=True)
class Blocked:
    """What holds a hung run: the kind of wait, how sure that is, the line, and the proof."""

    detail: str
    grade: Grade
    words: str
    line: Frame | None
    evidence: tuple[Evidence, ...]
    cure: str = ""
    worker: Stack | None = None
    others: tuple[tuple[str, Frame], ...] = ()
    to_change: Frame | None = None  # where that is another line than the one that waits
    rank: Rank | None = None  # the one to blame, of several
    who: str = "the process"  # that waits

    @property
    def claim(self) -> str:
        """Say where it stands and what it does there, as a sentence."""
        at = f" at {self.line.short}" if self.line is not None else ""
        return f"{self.who}{at} {self.words}"

    @property
    def number(self) -> int | None:
        return int(self.rank.number) if self.rank is not None and self.rank.number else None

    @property
    def line_code(self) -> str:
        return self.line.code if self.line is not None else ""

    @property
    def culprit(self) -> Culprit | None:
        frame = self.to_change or self.line
        return frame.culprit if frame is not None else None


@once
def blocked_in(record: RecordLike, ending: Ending) -> Blocked | None:
    """Tell what kind of wait a hung run is in; None when the run did not hang."""
    if ending.kind != "hung":
        return None
    stall = open_stall(record) or (record.of(Stall) or [Stall()])[-1]
    since = stall.since
    if since is not None and paged_during(record, since, stall.m):
        return None  # it moves, from page to page: that is `thrash`, not a hang
    stacks = stacks_of(record, ("stall", "attach")) or stacks_of(record, ("slow",))
    mine = next((stack for stack in stacks if stack.pid == stall.pid), None)
    line = stall_line(record, stall)
    ranks = ranks_of(record, stacks)
    between = disagreement(record, ranks) if len(ranks) > 1 else Disagreement("same", "")
    guilty = between.guilty
    by_pid = {stack.pid: stack for stack in stacks}
    peers = [rank for rank in ranks if rank.waits and rank is not guilty]
    waiting = min(peers, key=lambda rank: rank.pid not in by_pid, default=None)
    if guilty is not None and between.kind == "absent" and guilty.pid in by_pid:
        # What the absent rank stands in, if it is a wait of a known kind, is what all wait for.
        theirs = next((one for one in record.of(Stall)[::-1] if one.pid == guilty.pid), replace(stall, pid=guilty.pid))
        own = by_pid[guilty.pid]
        wait = kind_of_wait(record, theirs, own.inside, guilty.frame.code if guilty.frame else "", stacks)
        if wait.detail in ("worker", "device", "io", "deadlock") and wait.grade != "hypothesis":
            words = f"{wait.words}, and the other ranks wait for {guilty.name}"
            proof = (*_proof(record, theirs, own), *steps_evidence(ranks))
            return Blocked(
                wait.detail, wait.grade, words, guilty.frame, proof, wait.cure, wait.worker, own.others[:3],
                rank=guilty, who=guilty.name,
            )  # fmt: skip
    if guilty is not None and guilty.waits and guilty.pid in by_pid:
        mine, line = by_pid[guilty.pid], guilty.frame or line
    elif waiting is not None:
        # The rank that was seen first to stand still may be the one that the others wait for.
        mine, line = by_pid.get(waiting.pid, mine), waiting.frame or line
    # The wait is what lies inside the user's own innermost line; what is around it is not the cause.
    inside = mine.inside if mine is not None else ()
    wait = kind_of_wait(record, stall, inside, line.code if line is not None else "", stacks)
    names = [rank.collective for rank in ranks if rank.waits and (guilty is not None or rank.pid == stall.pid)]
    if wait.detail != "collective" and names:
        wait = Wait("collective", "supported", f"waits for the other ranks in {names[0]}")
    # Where the kernel has said who waits for whom, or that it is for a child, no lock is to be looked for.
    locked = wait.detail == "deadlock" and not stall.circle and stall.syscall not in ("wait4", "waitid")
    # Another thread that stands in code of the user's may hold what is waited for.
    words, others = wait.words, mine.others[:3] if locked and mine is not None else ()
    if others and wait.grade == "hypothesis" and in_framework(inside):
        # `fit` draws its data in another thread: what stands in the user's generator there is what it waits for.
        at = others[0][1]
        fed = f"waits for its data, while the thread that makes them stands at {at.place}"
        worker = Stack(mine.pid if mine else None, "worker", (at,))
        wait, words, others = Wait("worker", "supported", fed, "", worker), fed, ()
    holder = holder_of(record, mine.pid if mine else None, line) if locked else None
    if wait.detail == "collective":
        words += between.words
    elif holder is not None:
        # Who holds it proves the wait as well as frames do, where the process was seen to stand still.
        stands = stall.same_place and stall.cpu is not None and record.facts.attached is None
        wait = replace(wait, grade="established" if holder.sure and stands else wait.grade, cure=holder.cure)
        words, others = words + holder.words, ()
    elif others:
        name, at = others[0]
        words += f", while {f'thread {name}' if name else 'another thread'} stands at {at.place}"
    proof = (*(holder.evidence if holder is not None else ()), *_proof(record, stall, mine))
    proof += steps_evidence(ranks) if wait.detail == "collective" else ()
    change = holder.at if holder is not None else None
    blamed = guilty if wait.detail == "collective" else None  # whose line is to be seen
    subject = blamed if blamed is None or blamed.waits else waiting
    return Blocked(
        wait.detail, wait.grade, words, line, proof, wait.cure, wait.worker, others,
        blamed.frame if blamed is not None else change, blamed, subject.name if subject else "the process",
    )  # fmt: skip


def _proof(record: RecordLike, stall: Stall, mine: Stack | None) -> tuple[Evidence, ...]:
    found = []
    took = stalled_for(record, stall)
    if took is not None:
        limit = threshold(stall) if record.facts.attached is None else ""
        found.append(Evidence("no progress", f"for {duration(took)}" + (f" ({limit})" if limit else "")))
    cpu, call = stall.cpu, stall.syscall or stall.wchan.partition(".")[0]
    if cpu is not None:
        held = f", in the kernel's {call}{target_of(stall)}" if call and call != "0" else ""
        held += ", the same frames twice" if stall.same_place else ""
        busy = f"{cpu:.1f} cores busy" if cpu >= 0.05 else "idle"
        found.append(Evidence("CPU", busy + held))
    for frame in mine.user_frames[1:4] if mine is not None else ():
        code = f"    {frame.code}" if frame.code else ""
        found.append(Evidence("called from", f"{frame.short}{code}"))
    for name, frame in mine.others[:3] if mine is not None else ():
        found.append(Evidence("thread", f"{name} at {frame.short}    {frame.code}".strip()))
    dead = [row for row in last_processes(record) if row.state.startswith(("Z", "D"))]
    for row in dead[:3]:
        words = "is dead" if row.state.startswith("Z") else "sleeps uninterruptibly"
        found.append(Evidence("process", f"pid {row.pid} {row.name} {words}"))
    return tuple(found)
