"""What the trainer was at while its memory shot up: the stacks that were taken between two samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import Frame
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.hang.stalls import main_thread
from holter.record.events.recorder import Stacks
from holter.source.lines import culprit_at, grown_in, loop_around

# Of one climb: looks further apart than this belong to different ones.
_APART = 20.0
_MIN_LOOKS = 6  # looks, each a few percent of the limit after the one before
_ROUNDS = 2  # of a loop, that looks have seen


@dataclass(frozen=True)
class MemoryLook:
    """One look: when, how much the run held, and the main thread of the process that grew."""

    m: float
    used: float
    limit: float
    pid: int | None
    frames: tuple[Frame, ...]


@once
def memory_looks(record: RecordLike) -> tuple[MemoryLook, ...]:
    """Give the looks in the order they were taken."""
    found = []
    for event in record.of(Stacks):
        used, limit = event.used, event.limit
        if event.reason == "memory" and used and limit:
            # It was written a moment after it was taken.
            m = event.at or event.m
            found.append(MemoryLook(m, used, limit, event.pid, _own(tuple(main_thread(event)))))
    return tuple(sorted(found, key=lambda look: look.m))


def _own(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Leave out what a forked data worker has of the trainer's stack: it stands below the worker's own loop."""
    begin = next((n for n, frame in enumerate(frames) if frame.name == "_worker_loop"), len(frames))
    return frames[:begin]


def filled_by(record: RecordLike, pid: int | None = None) -> Frame | None:
    """Name the user's line at which the last climb gained the most; None when no look caught it."""
    looks = [look for look in memory_looks(record) if pid is None or look.pid == pid]
    climb = [look for look in looks if look.m >= looks[-1].m - _APART]
    gained: dict[tuple[str, int], float] = {}
    frames: dict[tuple[str, int], Frame] = {}
    before = None
    for look in climb:
        frame = next((frame for frame in look.frames if frame.user), None)
        if frame is None:
            continue
        key = (frame.file, frame.line)
        frames[key] = frame
        # The first look of a climb stands for what came before it; a later one for what came since the last.
        gained[key] = gained.get(key, 0.0) + (max(0.0, look.used - before) if before is not None else 1.0)
        before = look.used
    return frames[max(gained, key=lambda key: gained[key])] if gained else None


def gathered_by(record: RecordLike, pid: int | None = None, until: float = float("inf")) -> Frame | None:
    """Name the line that gathers, where a loop filled memory bit by bit: what it calls works, but keeps nothing."""
    looks = [look for look in memory_looks(record) if (pid is None or look.pid == pid) and look.m <= until]
    loops = _loops(record, looks)
    if not loops or len(loops) <= len(looks) / 2:
        return None
    file, loop, line = max(loops, key=loops.count)
    lines = record.source(file)
    kept = [at for at in grown_in(lines, loop) if loop_around(lines, at) == loop]
    found = culprit_at(file, lines, kept[0] if kept else line)
    return Frame(found.file, found.line, found.function, found.code, True)


def grown_in_a_loop(record: RecordLike) -> tuple[float, bool] | None:
    """Give what was gained bit by bit in a loop that keeps things, and whether it was seen to go round; else None."""
    looks = memory_looks(record)
    loops = _loops(record, looks)
    if len(looks) < _MIN_LOOKS or gathered_by(record) is None or len({(file, loop) for file, loop, _ in loops}) != 1:
        return None
    # A line further up than the one before it: the loop has begun anew in between.
    rounds = sum(after < before for (_, _, before), (_, _, after) in pairwise(loops))
    return looks[-1].used - looks[0].used, rounds >= _ROUNDS


def _loops(record: RecordLike, looks: Sequence[MemoryLook]) -> list[tuple[str, int, int]]:
    """Give for each look the outermost loop of the user's that it was in, by file and line, and the line within it."""
    found = []
    for look in looks:
        for frame in reversed(look.frames):
            loop = loop_around(record.source(frame.file), frame.line) if frame.user else None
            if loop is not None:
                found.append((frame.file, loop, frame.line))
                break
    return found
