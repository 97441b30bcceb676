"""What a hung run is blocked in, told from its stacks, its state and its use of the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holter.diagnosis.evidence import last_processes
from holter.diagnosis.examined import once
from holter.diagnosis.exits import exit_of
from holter.diagnosis.fields import flag, number, text, whole
from holter.diagnosis.frames import Frame
from holter.diagnosis.rule import RecordLike
from holter.diagnosis.stalls import Stack, open_stall, stacks_of, stall_line, stalled_for
from holter.diagnosis.waits import kind_of_wait, target_of
from holter.finding import Ending, Evidence, Grade
from holter.units import duration


@dataclass(frozen=True)
class Blocked:
    """What holds a hung run: the kind of wait, how sure that is, the line, and the proof."""

    detail: str
    grade: Grade
    words: str
    line: Frame | None
    stacks: tuple[Stack, ...]
    evidence: tuple[Evidence, ...]
    worker: Stack | None = None


@once
def blocked_in(record: RecordLike, ending: Ending) -> Blocked | None:
    """Tell what kind of wait a hung run is in; None when the run did not hang."""
    if ending.kind != "hung":
        return None
    stall = open_stall(record) or (record.events_of("stall") or [{}])[-1]
    stacks = stacks_of(record, ("stall", "attach"))
    pid = whole(stall, "pid")
    mine = next((stack for stack in stacks if stack.pid == pid), None)
    line = stall_line(record, stall)
    top = mine.frames[:80] if mine is not None else ()
    # The wait is what lies inside the user's own innermost line; what is around it is not the cause.
    inside = _inside(top)
    code = line.code if line is not None else ""
    detail, grade, words, worker = kind_of_wait(record, stall, inside, code, stacks)
    return Blocked(detail, grade, words, line, tuple(stacks), _proof(record, stall, mine), worker)


def _inside(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    for at, frame in enumerate(frames):
        if frame.user:
            return frames[:at]
    return frames


def _proof(record: RecordLike, stall: dict[str, Any], mine: Stack | None) -> tuple[Evidence, ...]:
    found, left = [], exit_of(record)
    took = stalled_for(record, stall, left.m if left is not None else None)
    if took is not None:
        found.append(Evidence("no progress", f"for {duration(took)}", number(stall, "t")))
    cpu, state, wchan = number(stall, "cpu"), text(stall, "state"), text(stall, "wchan")
    if cpu is not None:
        held = f", state {state}" if state else ""
        held += f", kernel wait {wchan}" if wchan and wchan != "0" else ""
        held += f", system call {text(stall, 'syscall')}{target_of(stall)}" if text(stall, "syscall") else ""
        found.append(Evidence("CPU", f"{cpu:.2f} of a core{held}", number(stall, "t")))
    if flag(stall, "same_place"):
        found.append(Evidence("stacks", "the same frames in both readings"))
    users = mine.user_frames if mine is not None else ()
    for frame in users[:6]:
        code = f"    {frame.code}" if frame.code else ""
        found.append(Evidence("stack", f"{frame.short} in {frame.function or '?'}{code}"))
    dead = [row for row in last_processes(record) if text(row, "state").startswith(("Z", "D"))]
    for row in dead[:3]:
        words = "is dead" if text(row, "state").startswith("Z") else "sleeps uninterruptibly"
        found.append(Evidence("process", f"pid {whole(row, 'pid')} {text(row, 'name')} {words}"))
    return tuple(found)
