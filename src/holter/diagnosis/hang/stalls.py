"""A stall that was never over: what the run waits in, where, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import Frame, frames_of, innermost_first, is_user_file
from holter.diagnosis.core.progress import last_line, progress_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import ended_at
from holter.record.events.agent import UncaughtException
from holter.record.events.recorder import SignalReceived, Stacks, Stall, StallOver
from holter.record.events.timeline import Processes, Sample, StepWindow
from holter.source.lines import endless_around
from holter.units import duration

# Code longer than this stands on its own line of a verdict, not within a sentence.
_SHORT_CODE = 40
_GIVEN_UP_S, _GIVEN_UP_TIMES, _LOOKS = 30.0, 50.0, 4
_SPINS_CORES = 0.15  # of one core: what computes, on however busy a machine
_TRAINS = ("forward", "backward", "optimizer")
_ENDS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")


@dataclass(frozen=True)
class Stack:
    """One process's blocked thread, innermost call first."""

    pid: int | None
    role: str
    frames: tuple[Frame, ...]
    reason: str = ""
    # What the process's other threads stand in, those of the user's own code: name and innermost user frame.
    others: tuple[tuple[str, Frame], ...] = ()

    @property
    def user_frames(self) -> tuple[Frame, ...]:
        return tuple(frame for frame in self.frames if frame.user)

    @property
    def inside(self) -> tuple[Frame, ...]:
        """Give the frames of libraries that the user's innermost line has led into."""
        return tuple(takewhile(lambda frame: not frame.user, self.frames[:80]))


@once
def open_stall(record: RecordLike) -> Stall | None:
    """Give the last stall that neither ended nor was followed by another step."""
    for stall in record.of(Stall)[::-1]:
        pid, m = stall.pid, stall.m
        over = (event for event in record.of(StallOver) if event.pid in (pid, None))
        moved = (line for line in record.of(StepWindow) if line.pid == pid)
        if not any(m < line.m < _asked_to_end(record, m) for line in (*over, *moved)):
            return stall
    return _given_up_on(record)


def _given_up_on(record: RecordLike) -> Stall | None:
    """Give a silence that somebody ended, in which a worker was busy at one place, or the process in one loop, at
    every look.

    While a run is on, that may yet be a large sample. Of one that was ended meanwhile it is what there is to say. Each
    batch that came, one of a validation too, is a sign of life.
    """
    progress, end = progress_of(record), ended_at(record)
    if end is None or progress.last_step_m is None:
        return None
    end = min(end, _asked_to_end(record, progress.last_step_m))
    agents = (agent for line in record.of(Sample) if line.m < end for agent in line.agents if agent.pid == progress.pid)
    since = max(progress.last_step_m, *(agent.activity or 0.0 for agent in agents), 0.0)
    longest = max((line.max or 0.0 for line in record.of(StepWindow) if line.pid == progress.pid), default=0.0)
    limit = max(_GIVEN_UP_S, _GIVEN_UP_TIMES * longest)
    slow = [event for event in record.of(Stacks) if event.reason == "slow"]
    looks = [event for event in slow if since < event.m < end]
    mine = [event for event in looks if event.pid == progress.pid]
    if end - since < limit or len(mine) < _LOOKS or mine[-1].m - mine[0].m < 0.5 * (end - since):
        return None
    places: dict[int | None, set[tuple[str, str]]] = {}
    for event in looks:
        if event.role == "worker":
            own = takewhile(lambda frame: frame.name != "_worker_loop", main_thread(event))
            at = next((frame for frame in own if frame.user), None)
            places.setdefault(event.pid, set()).add((at.file, at.function) if at is not None else ("", ""))
    stuck = any(len(seen) == 1 and ("", "") not in seen for seen in places.values())
    line = next((frame for frame in main_thread(mine[-1]) if frame.user), None)
    cores = None
    if not stuck or line is None or any(event.phase != "data" for event in mine):
        line = _endless_loop(record, mine, [event for event in slow if event.pid == progress.pid])
        cores = _cores(record, mine[0].m, mine[-1].m)
        if line is None or cores < _SPINS_CORES:
            return None
    learned = f"{_GIVEN_UP_TIMES:.0f} times the longest step before it, {duration(longest)}"
    return Stall(
        m=since + limit, pid=progress.pid, since=since, phase=mine[-1].phase, step=progress.step, limit=limit,
        learned=learned if limit > _GIVEN_UP_S else "", same_place=cores is None, cpu=cores,
        file=line.file, line=line.line, function=line.function, code=line.code,
    )  # fmt: skip


def _endless_loop(record: RecordLike, looks: list[Stacks], all_looks: list[Stacks]) -> Frame | None:
    """Give the innermost `while` that the process stood in at every look; one in which it trains is none."""
    trained = {
        (frame.file, endless_around(record.source(frame.file), frame.line))
        for event in all_looks if event.phase in _TRAINS for frame in main_thread(event) if frame.user
    }  # fmt: skip
    stacks = [[frame for frame in reversed(main_thread(event)) if frame.user] for event in looks]
    found = None
    for level in zip(*stacks, strict=False):
        first = level[0]
        lines = {endless_around(record.source(first.file), frame.line) for frame in level}
        at = lines.pop() if len(lines) == 1 else None
        if len({(frame.file, frame.function) for frame in level}) > 1:
            break
        if at is not None and (first.file, at) not in trained:
            found = Frame(first.file, at, first.function, record.source(first.file)[at - 1].strip(), True)
        if at is None and len({frame.line for frame in level}) > 1:
            break
    return found


def _cores(record: RecordLike, begin: float, end: float) -> float:
    """Give how many cores the run kept busy between two moments."""
    used = [(m, one.cpu_s) for m, one in record.readings(Processes) if begin <= m <= end and one.cpu_s is not None]
    return (used[-1][1] - used[0][1]) / (used[-1][0] - used[0][0]) if len(used) > 1 else 0.0


def _asked_to_end(record: RecordLike, after: float) -> float:
    """Give when somebody gave up on it: that the process stirs as it is ended is no sign of life."""
    asked = [e.m for e in record.of(SignalReceived) if e.signal in _ENDS]
    asked += [e.m for e in record.of(UncaughtException) if e.type == "KeyboardInterrupt"]
    return min((m for m in asked if m > after), default=float("inf"))


def stalled_for(record: RecordLike, stall: Stall) -> float | None:
    """Say how long nothing has moved, until the end or the last line of the record."""
    since = stall.since
    if since is None:
        return None
    end = ended_at(record)
    last = end if end is not None else last_line(record)
    return last - since if last >= since else None


def stall_line(record: RecordLike, stall: Stall) -> Frame | None:
    """Give the user's line that a stall stands on, from the stall itself or from the stacks."""
    file = stall.file
    if file:
        code = stall.code.strip()
        return Frame(file, stall.line or 0, stall.function, code, is_user_file(file))
    for stack in stacks_of(record, ("stall", "attach", "end")):
        if stack.pid == stall.pid and stack.user_frames:
            return stack.user_frames[0]
    return None


def stacks_of(record: RecordLike, reasons: tuple[str, ...]) -> list[Stack]:
    """Give each process's last captured main thread, for the reasons asked for."""
    found: dict[int | None, Stack] = {}
    for event in record.of(Stacks):
        if event.reason not in reasons:
            continue
        frames = main_thread(event)
        if frames:
            pid = event.pid
            others = _other_threads(event, frames)
            found[pid] = Stack(pid, event.role, tuple(frames), event.reason, others)
    return list(found.values())


def main_thread(event: Stacks) -> list[Frame]:
    """Choose the thread to blame: the one that crashed, else the main one, else the current one, else the last."""
    stacks = [(thread, innermost_first(frames_of(thread.frames))) for thread in event.threads]
    stacks = [(thread, frames) for thread, frames in stacks if frames]
    for thread, frames in stacks:
        main = thread.main or thread.name.lower() in ("main", "mainthread")
        if thread.current if event.reason == "fatal" else main:
            return frames
    for _, frames in stacks:
        if any(frame.function == "<module>" for frame in frames):
            return frames
    for thread, frames in stacks:
        if thread.current:
            return frames
    return stacks[-1][1] if stacks else []


def _other_threads(event: Stacks, chosen: list[Frame]) -> tuple[tuple[str, Frame], ...]:
    found = []
    for thread in event.threads:
        frames = innermost_first(frames_of(thread.frames))
        user = next((frame for frame in frames if frame.user), None)
        if user is not None and frames != chosen:
            found.append((thread.name, user))
    return tuple(found)


def waits_in(record: RecordLike, stall: Stall) -> str:
    """Say what a stalled run is doing, as part of a sentence."""
    line, phase = stall_line(record, stall), stall.phase
    if line is not None:
        on = f" ({line.code})" if line.code and len(line.code) <= _SHORT_CODE else ""
        return f"it waits at {line.short}{on}"
    if phase and phase not in ("start", "other", "attached"):
        return f"it waits in {phase}"
    if any("not Python" in event.failed for event in record.of(Stacks)):
        return "it is no Python program, so only what the kernel shows is known"
    return "where it waits could not be read"


def threshold(stall: Stall) -> str:
    """Say after how long a pause is called a hang here, and where that figure comes from."""
    limit, learned = stall.limit, stall.learned
    if limit is None:
        return ""
    return f"threshold {duration(limit)}" + (f", {learned}" if learned else "")
