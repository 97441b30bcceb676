"""What several rules read from a record: counters that rose, the processes of the tree, disks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.rule import P, RecordLike
from holter.finding import Culprit
from holter.record.events.agent import Adapter, AgentHello, Made, UncaughtException
from holter.record.events.looks import NonfiniteLook, Trace
from holter.record.events.recorder import NoAgent, ProcessGone, ProcessJoined, Spawned
from holter.record.events.schema import ProcessEvent
from holter.record.events.timeline import Disk, FileSystem, Process, Processes
from holter.source.lines import culprit_at


@dataclass(frozen=True)
class Rise:
    """A cumulative counter that went up: from, to, and between which two readings (monotonic)."""

    before: int
    after: int
    since: float
    until: float


def last_rise(readings: Iterable[tuple[float, int | None, str]]) -> Rise | None:
    """Find a counter's last rise in (time, value, whose counter it is); another's starts anew, as do resets."""
    rise, known = None, None
    for m, value, place in readings:
        if value is None:
            continue
        if known is not None and known[2] == place and value > known[1]:
            rise = Rise(known[1], value, known[0], m)
        known = (m, value, place)
    return rise


@once
def tree_pids(record: RecordLike) -> set[int]:
    """Give every process id that was ever seen in the run's tree."""
    found = {row.pid for _, reading in record.readings(Processes) for row in reading.rows}
    kinds: tuple[type[ProcessEvent], ...] = (Spawned, ProcessJoined, ProcessGone, AgentHello, NoAgent)
    for kind in kinds:
        found |= {event.pid for event in record.of(kind)}
    return {pid for pid in found if pid}


@once
def last_processes(record: RecordLike, before: float | None = None) -> list[Process]:
    """Give the last list of the tree's processes that was read before a time, largest first."""
    best: tuple[Process, ...] = ()
    total, end = -1.0, None
    for m, reading in reversed(record.readings(Processes)):
        if not reading.rows or (before is not None and m > before):
            continue
        end = m if end is None else end
        # After a kill the tree is gone piece by piece: of the last seconds, the fullest reading counts.
        if m < end - 3:
            break
        held = sum(row.rss or 0 for row in reading.rows)
        if held > total:
            best, total = reading.rows, held
    return sorted(best, key=lambda row: -(row.rss or 0))


@once
def roles(record: RecordLike) -> dict[int, str]:
    """Give the part that each process of the tree plays, where an agent said it."""
    gone = {event.pid: event.role for event in record.of(ProcessGone) if event.pid and event.role}
    return gone | {event.pid: event.role for event in record.of(AgentHello) if event.pid and event.role}


@once
def user_files(record: RecordLike) -> list[str]:
    """Give the files of the user's that the record has kept, the script itself first."""
    found = [event.file for event in record.of(AgentHello)]
    found += [event.file for event in record.of(NonfiniteLook)]
    found += [module.file for event in record.of(NonfiniteLook) for module in event.modules]
    found += [event.file for event in record.of(Made)]
    found += [event.file for event in record.of(Trace)]
    found += [frame.file for event in record.of(UncaughtException) for frame in event.frames]
    return [file for file in dict.fromkeys(found) if file and record.source(file)]


def first_in_sources(record: RecordLike, find: Callable[[list[str]], int | None]) -> Culprit | None:
    """Give the line that a look at the user's files finds in the first of them, the script itself before others."""
    for file in user_files(record):
        lines = record.source(file)
        line = find(lines)
        if line is not None:
            return culprit_at(file, lines, line)
    return None


def loader_with_workers(record: RecordLike) -> Made:
    """Give the loader with the most workers, an empty one where there is none."""
    found = [event for event in record.of(Made) if event.what == "loader" and event.num_workers]
    return max(found, key=lambda event: event.num_workers or 0, default=Made())


def on_macos(record: RecordLike) -> bool:
    """Tell whether the run was on macOS, whatever machine its record is read on."""
    return record.facts.platform.lower().startswith(("darwin", "macos"))


@once
def frameworks_on(record: RecordLike) -> set[str]:
    """Give the frameworks of which the steps are seen."""
    return {event.framework for event in record.of(Adapter) if event.state == "on"}


def wall_clock(record: RecordLike, m: float | None) -> float | None:
    """Turn a monotonic time of the record into wall-clock seconds."""
    started, mono = record.facts.started, record.facts.mono
    return None if m is None or started is None or mono is None else started + (m - mono)


def series(record: RecordLike, probe: type[P], figure: Callable[[P], float | None]) -> list[tuple[float, float]]:
    """Give one figure of a probe over time, where it was read."""
    return [(m, value) for m, reading in record.readings(probe) if (value := figure(reading)) is not None]


def latest(record: RecordLike, probe: type[P], wanted: Callable[[P], bool]) -> P:
    """Give a probe's latest reading that satisfies a condition, or an empty one."""
    return next((reading for _, reading in reversed(record.readings(probe)) if wanted(reading)), probe())


def fullest_disk(record: RecordLike, path: str = "") -> FileSystem:
    """Give the file system that a path lies on, else the one with the least space, as last read."""
    for _, reading in reversed(record.readings(Disk)):
        known = [row for row in reading.rows if row.free is not None]
        if not known:
            continue
        on = [row for row in known if path and _under(path, row.mount or row.path)]
        if on:
            return max(on, key=lambda row: len(row.mount))
        return min(known, key=lambda row: row.free or 0.0)
    return FileSystem()


def _under(path: str, mount: str) -> bool:
    return bool(mount) and (path + "/").startswith(mount.rstrip("/") + "/")


def is_own_class(record: RecordLike, name: str) -> bool:
    """Tell whether a class is one of the script's own."""
    lines = (line for file in user_files(record) for line in record.source(file))
    return bool(name) and any(re.match(rf"\s*class {re.escape(name)}\b", line) for line in lines)
