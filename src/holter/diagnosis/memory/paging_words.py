"""A run that moves pages, in words: what it cost, what shows it, and the user's line that waits for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from holter.diagnosis.core.evidence import wall_clock
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import Frame
from holter.diagnosis.core.progress import progress_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.hang.stalls import main_thread, open_stall, stall_line
from holter.diagnosis.memory.paging import SWAP, Paging, stretches
from holter.diagnosis.memory.unified import pressure_evidence
from holter.finding import Culprit, Evidence
from holter.record.events.agent import Made
from holter.record.events.recorder import Stacks
from holter.record.events.timeline import Apple, Cgroup, MachineMemory, Processes
from holter.source.lines import culprit_at
from holter.units import duration, share, size

# What is made in a script, in the order in which it is likely to be what fills memory.
_MADE = ("loader", "model", "optimizer")


def price(found: Paging) -> str:
    """Say what it cost, as the end of a sentence."""
    text = ""
    if found.slowdown is not None and found.slowdown >= 1.5 and found.slow and found.quick:
        text = f"; steps took {duration(found.slow)} instead of {duration(found.quick)}"
    if found.computing is not None and found.computing < 0.7 and not found.unified:
        text += f"; {found.computing:.2f} of a core was at the training's own work"
    elif (found.waited or 0.0) >= 0.03:
        text += f"; it waited for memory {share(found.waited or 0.0)} of the time"
    return text


def swapped_out(record: RecordLike, found: Paging) -> float:
    """Give how much of the run lay in swap, at the most, while pages moved."""
    container = [(m, reading.swap_usage) for m, reading in record.readings(Cgroup)]
    tree = [(m, reading.swap) for m, reading in record.readings(Processes)]
    machine = [(m, reading.swap_used) for m, reading in record.readings(Apple)]
    for readings in (container, tree, machine):
        top = max((out or 0.0 for m, out in readings if found.begin <= m <= found.end), default=0.0)
        if top > 0:
            return top
    return 0.0


def others_hold(record: RecordLike) -> float:
    """Give what other programs hold, where it is the machine's own memory that ran short and they hold much of it."""
    if any(reading.limit for _, reading in record.readings(Cgroup)[-3:]):
        return 0.0
    for _, reading in reversed(record.readings(MachineMemory)):
        total, free = reading.total, reading.available
        if total and free is not None:
            held = [one.footprint for _, one in record.readings(Apple)[-1:]]
            held = held or [one.rss for _, one in record.readings(Processes)[-1:]]
            own = next(iter(held), None) or 0.0
            others = total - free - own
            return others if others > 0.25 * total else 0.0
    return 0.0


def evidence_of(record: RecordLike, found: Paging) -> tuple[Evidence, ...]:
    """Give the proof: what moved, what waited, what stood still, and the line it was met on."""
    since = wall_clock(record, found.begin)
    what = "swapped in" if found.kind == SWAP else "read again"
    shown = [Evidence(what, f"{size(found.rate)} per second for {duration(found.seconds)}", since)]
    out = swapped_out(record, found)
    if out:
        shown.append(Evidence("in swap", size(out)))
    if found.waited is not None:
        shown.append(
            Evidence("waiting for memory", f"{share(found.waited)} of the time (the kernel's pressure figure)")
        )
    if found.computing is not None:
        kernel = f", {found.in_kernel:.2f} in the kernel" if found.in_kernel is not None else ""
        shown.append(Evidence("CPU", f"{found.computing:.2f} cores at the training's own work{kernel}"))
    hits = [value for _, r in record.readings(Cgroup) if (value := r.at_limit) is not None]
    if hits and hits[-1] > hits[0]:
        limit = next((r.limit for _, r in reversed(record.readings(Cgroup)) if r.limit), None)
        of = f" of {size(limit)}" if limit else ""
        shown.append(Evidence("limit", f"the container's limit{of} was hit {hits[-1] - hits[0]:,} times"))
    shown += pressure_evidence(record)
    stood = stood_on(record)
    if stood is not None:
        at = f"{stood.frame.short} in {stood.times} of {stood.looks} looks"
        shown.append(Evidence("waits at", f"{at}    {stood.frame.code}".strip()))
    return tuple(shown)


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
