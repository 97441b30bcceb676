"""The last moments of a record, read without the rest of it: for a list of many runs that are on."""

from __future__ import annotations

import os
from pathlib import Path

from holter.record import labels, lines, place
from holter.record.reader import Record, read_meta, settle

_TIMELINE_BYTES = 48 << 10
_EVENT_BYTES = 16 << 10


def recent(folder: Path) -> Record:
    """A record with the facts of the start and the last lines of each file; `live` is told as of a whole one."""
    record = Record(read_meta(folder))
    for name in (place.EVENTS, place.KEEPER):
        record.events += lines.parse(_end(folder / name, _EVENT_BYTES))[0]
    try:
        newest = max(name for name in os.listdir(folder / place.TIMELINE) if name.endswith(".jsonl"))
        record.timeline = lines.parse(_end(folder / place.TIMELINE / newest, _TIMELINE_BYTES))[0]
    except (OSError, ValueError):
        pass
    settle(record, folder, output=False)
    return record


def written(folder: Path) -> tuple[int, ...]:
    """Numbers that change whenever something is written to the record."""
    sizes = [_size(folder / name) for name in (place.META, place.EVENTS, place.KEEPER)]
    sizes.append(_changed(folder / labels.FILE))  # another name may be as long
    try:
        with os.scandir(folder / place.TIMELINE) as found:
            names = sorted(entry.name for entry in found)
    except OSError:
        names = []
    return (*sizes, len(names), _size(folder / place.TIMELINE / names[-1]) if names else 0)


def _end(path: Path, most: int) -> bytes:
    """The last whole lines of a file."""
    size = _size(path)
    begin = max(0, size - most)
    try:
        raw = lines.read_from(path, begin, most)
    except OSError:
        return b""
    return raw[raw.find(b"\n") + 1 :] if begin else raw


def _size(path: Path) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return 0


def _changed(path: Path) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0
