"""The user's line that waits for pages, or that made what does not fit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import Frame
from holter.diagnosis.core.progress import progress_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.hang.stalls import main_thread, open_stall, stall_line
from holter.diagnosis.memory.paging import stretches
from holter.finding import Culprit
from holter.record.events.agent import Made
from holter.record.events.recorder import Stacks
from holter.source.lines import culprit_at

# What is made in a script, in the order in which it is likely to be what fills memory.
_MADE = ("loader", "model", "optimizer")


@dataclass(frozen=True)
class Stood:
    """The line that the trainer was most often met on, and in how many of all looks."""

    frame: Frame
    times: int
    looks: int


@once
def stood_on(record: RecordLike) -> Stood | None:
    """Give the line met most often while pages came back: the trainer's, or its workers' where it waits for them."""
    looks = [event for event in record.of(Stacks) if event.reason == "slow"]
    during = [event for event in looks if _paged_at(record, event.at or event.m)]
    looks = during if len(during) >= 3 else looks
    trainer = progress_of(record).pid
    own = [event for event in looks if trainer is None or event.pid == trainer]
    fed = [event for event in own if any("data/dataloader" in frame.file for frame in main_thread(event))]
    theirs = [event for event in looks if trainer is not None and event.pid != trainer]
    chosen = _most_often(theirs) if len(fed) > 0.5 * len(own) else None
    return chosen or _most_often(own)


def _paged_at(record: RecordLike, m: float) -> bool:
    return any(one.kind for one in stretches(record) if one.begin <= m <= one.end)


def _most_often(looks: list[Stacks]) -> Stood | None:
    met: Counter[tuple[str, int]] = Counter()
    frames: dict[tuple[str, int], Frame] = {}
    for event in looks:
        frame = next((frame for frame in main_thread(event) if frame.user), None)
        if frame is not None:
            met[(frame.file, frame.line)] += 1
            frames[(frame.file, frame.line)] = frame
    if not met:
        return None
    where, times = met.most_common(1)[0]
    return Stood(frames[where], times, len(looks))


def line_of(record: RecordLike) -> Culprit | None:
    """Name the line: where it waits, else where it stalled, else what was made that may not fit."""
    stood = stood_on(record)
    if stood is not None and stood.times >= 0.3 * stood.looks:
        return stood.frame.culprit
    stall = open_stall(record)
    line = stall_line(record, stall) if stall is not None else None
    if line is not None and line.user:
        return line.culprit
    if stood is not None:
        return stood.frame.culprit
    for what in _MADE:
        for event in record.of(Made):
            if event.what == what and event.file:
                file, at = event.file, int(event.line or 0)
                return culprit_at(file, record.source(file), at, event.function)
    return None
