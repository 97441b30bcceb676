"""What several rules read from a record: counters that rose, the processes of the tree, disks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.fields import number, rows, text, whole
from holter.diagnosis.core.rule import RecordLike


@dataclass(frozen=True)
class Rise:
    """A cumulative counter that went up: from, to, and between which two readings (monotonic)."""

    before: int
    after: int
    since: float
    until: float


@once
def last_rise(record: RecordLike, probe: str, field: str, same: str = "") -> Rise | None:
    """Find a counter's last rise; a reading whose `same` field differs starts anew, as do resets."""
    rise, known = None, None
    for m, reading in record.samples(probe):
        value = whole(reading, field)
        if value is None:
            continue
        place = text(reading, same) if same else ""
        if known is not None and known[2] == place and value > known[1]:
            rise = Rise(known[1], value, known[0], m)
        known = (m, value, place)
    return rise


@once
def tree_pids(record: RecordLike) -> set[int]:
    """Give every process id that was ever seen in the run's tree."""
    found: set[int] = set()
    for kind in ("started", "spawned", "process", "process-gone", "guest", "no-guest"):
        found.update(pid for event in record.events_of(kind) if (pid := whole(event, "pid")))
    for _, reading in record.samples("processes"):
        found.update(pid for row in rows(reading, "list") if (pid := whole(row, "pid")))
    return found


@once
def last_processes(record: RecordLike, before: float | None = None) -> list[dict[str, Any]]:
    """Give the last list of the tree's processes that was read before a time, largest first."""
    best: list[dict[str, Any]] = []
    total, end = -1.0, None
    for m, reading in reversed(record.samples("processes")):
        listed = rows(reading, "list")
        if not listed or (before is not None and m > before):
            continue
        end = m if end is None else end
        # After a kill the tree is gone piece by piece: of the last seconds, the fullest reading counts.
        if m < end - 3:
            break
        held = sum(number(row, "rss") or 0 for row in listed)
        if held > total:
            best, total = listed, held
    return sorted(best, key=lambda row: -(number(row, "rss") or 0))


@once
def roles(record: RecordLike) -> dict[int, str]:
    """Give the part that each process of the tree plays, where an agent said it."""
    found = {}
    for kind in ("process-gone", "guest"):
        for event in record.events_of(kind):
            pid = whole(event, "pid")
            if pid and text(event, "role"):
                found[pid] = text(event, "role")
    return found


@once
def user_files(record: RecordLike) -> list[str]:
    """Give the files of the user's that the record has kept, the script itself first."""
    found: dict[str, None] = {}
    for kind in ("guest", "nan", "made", "trace", "exception"):
        for event in record.events_of(kind):
            for file in (text(event, "file"), *(text(row, "file") for row in rows(event, "frames"))):
                if file and record.source(file):
                    found.setdefault(file)
    return list(found)


def wall(record: RecordLike, m: float | None) -> float | None:
    """Turn a monotonic time of the record into wall-clock seconds."""
    started, mono = number(record.meta, "started"), number(record.meta, "mono")
    return None if m is None or started is None or mono is None else started + (m - mono)


def latest(record: RecordLike, probe: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Give a probe's latest reading that satisfies a condition, or an empty one."""
    for _, reading in record.samples(probe)[::-1]:
        if wanted(reading):
            return reading
    return {}


def fullest_disk(record: RecordLike, path: str = "") -> dict[str, Any]:
    """Give the file system that a path lies on, else the one with the least space, as last read."""
    for _, reading in reversed(record.samples("disk")):
        known = [row for row in rows(reading, "list") if number(row, "free") is not None]
        if not known:
            continue
        on = [row for row in known if path and _under(path, text(row, "mount") or text(row, "path"))]
        if on:
            return max(on, key=lambda row: len(text(row, "mount")))
        return min(known, key=lambda row: number(row, "free") or 0.0)
    return {}


def _under(path: str, mount: str) -> bool:
    return bool(mount) and (path + "/").startswith(mount.rstrip("/") + "/")
