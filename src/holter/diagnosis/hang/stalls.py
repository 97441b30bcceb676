"""A stall that was never over: what the run waits in, where, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.fields import moment, number, rows, text, whole
from holter.diagnosis.core.frames import Frame, frames_of, innermost_first, is_user_file
from holter.diagnosis.core.rule import RecordLike
from holter.units import duration

# Code longer than this stands on its own line of a verdict, not within a sentence.
_SHORT_CODE = 40
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
def open_stall(record: RecordLike) -> dict[str, Any] | None:
    """Give the last stall that neither ended nor was followed by another step."""
    for stall in record.events_of("stall")[::-1]:
        pid, m = whole(stall, "pid"), moment(stall)
        over = (event for event in record.events_of("stall-over") if whole(event, "pid") in (pid, None))
        moved = (line for line in record.lines("steps") if whole(line, "pid") == pid)
        if not any(m < moment(line) < _asked_to_end(record, m) for line in (*over, *moved)):
            return stall
    return None


def _asked_to_end(record: RecordLike, after: float) -> float:
    """Give when somebody gave up on it: that the process stirs as it is ended is no sign of life."""
    asked = [moment(e) for e in record.events_of("signal") if text(e, "signal") in _ENDS]
    asked += [moment(e) for e in record.events_of("exception") if text(e, "type") == "KeyboardInterrupt"]
    return min((m for m in asked if m > after), default=float("inf"))


def stalled_for(record: RecordLike, stall: dict[str, Any], end: float | None) -> float | None:
    """Say how long nothing has moved, until the end or the last line of the record."""
    since = number(stall, "since")
    if since is None:
        return None
    last = end if end is not None else max((moment(x) for x in (*record.events, *record.timeline)), default=since)
    return last - since if last >= since else None


def stall_line(record: RecordLike, stall: dict[str, Any]) -> Frame | None:
    """Give the user's line that a stall stands on, from the stall itself or from the stacks."""
    file = text(stall, "file")
    if file:
        code = text(stall, "code").strip()
        return Frame(file, whole(stall, "line") or 0, text(stall, "function"), code, is_user_file(file))
    for stack in stacks_of(record, ("stall", "attach", "end")):
        if stack.pid == whole(stall, "pid") and stack.user_frames:
            return stack.user_frames[0]
    return None


def stacks_of(record: RecordLike, reasons: tuple[str, ...]) -> list[Stack]:
    """Give each process's last captured main thread, for the reasons asked for."""
    found: dict[int | None, Stack] = {}
    for event in record.events_of("stacks"):
        if text(event, "reason") not in reasons:
            continue
        frames = main_thread(event)
        if frames:
            pid = whole(event, "pid")
            others = _other_threads(event, frames)
            found[pid] = Stack(pid, text(event, "role"), tuple(frames), text(event, "reason"), others)
    return list(found.values())


def main_thread(event: dict[str, Any]) -> list[Frame]:
    """Choose the thread to blame: the one that crashed, else the main one, else the current one, else the last."""
    threads = event.get("threads")
    listed = [thread for thread in threads if isinstance(thread, dict)] if isinstance(threads, list) else []
    stacks = [(thread, innermost_first(frames_of(thread))) for thread in listed]
    stacks = [(thread, frames) for thread, frames in stacks if frames]
    wanted = "current" if text(event, "reason") == "fatal" else "main"
    for thread, frames in stacks:
        if thread.get(wanted) is True or (wanted == "main" and text(thread, "name").lower() in ("main", "mainthread")):
            return frames
    for _, frames in stacks:
        if any(frame.function == "<module>" for frame in frames):
            return frames
    for thread, frames in stacks:
        if thread.get("current") is True:
            return frames
    return stacks[-1][1] if stacks else []


def _other_threads(event: dict[str, Any], chosen: list[Frame]) -> tuple[tuple[str, Frame], ...]:
    found = []
    for thread in rows(event, "threads"):
        frames = innermost_first(frames_of(thread))
        user = next((frame for frame in frames if frame.user), None)
        if user is not None and frames != chosen:
            found.append((text(thread, "name"), user))
    return tuple(found)


def waits_in(record: RecordLike, stall: dict[str, Any]) -> str:
    """Say what a stalled run is doing, as part of a sentence."""
    line, phase = stall_line(record, stall), text(stall, "phase")
    if line is not None:
        on = f" ({line.code})" if line.code and len(line.code) <= _SHORT_CODE else ""
        return f"it waits at {line.short}{on}"
    if phase and phase not in ("start", "other", "attached"):
        return f"it waits in {phase}"
    if any("not Python" in text(event, "failed") for event in record.events_of("stacks")):
        return "it is no Python program, so only what the kernel shows is known"
    return "where it waits could not be read"


def threshold(stall: dict[str, Any]) -> str:
    """Say after how long a pause is called a hang here, and where that figure comes from."""
    limit, learned = number(stall, "limit"), text(stall, "learned")
    if limit is None:
        return ""
    return f"threshold {duration(limit)}" + (f", {learned}" if learned else "")
