"""Follows a record that is being written: what was read once is not read again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from holter.record import lines, place
from holter.record.reader import Record, read_meta, settle

_AT_ONCE = 24 << 20


class Follower:
    """The record of a run that is on; `refresh` takes in what has been written since."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = Record(read_meta(folder))
        self._read: dict[str, int] = {}
        self._room = lines.Room()
        self.refresh()

    def refresh(self) -> bool:
        """Read on; True when there was anything new."""
        names = self._segments()
        if any(name.startswith(place.TIMELINE) and name not in names for name in self._read):
            # A segment was packed, and is thinner than it was.
            self.record, self._read, self._room = Record(self.record.meta), {}, lines.Room()
        fresh = [line for name in names for line in self._grown(name)]
        facts = [line for name in (place.EVENTS, place.KEEPER) for line in self._grown(name)]
        self.record.timeline += fresh
        self.record.events += facts
        self.record.keep_sources(self._grown(place.SOURCES))
        if fresh:
            self.record.timeline.sort(key=lambda line: float(line["m"]))
        if facts:
            self.record.events.sort(key=lambda line: float(line["m"]))
        settle(self.record, self.folder)
        return bool(fresh or facts)

    def _segments(self) -> list[str]:
        """The timeline's files, the newest first; of one that is there twice only the packed one."""
        folder = self.folder / place.TIMELINE
        if folder.is_symlink():
            return []
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith((".jsonl", ".jsonl.gz")))
        except OSError:
            return []
        found = {name.partition(".")[0]: name for name in names}
        return [f"{place.TIMELINE}/{found[number]}" for number in sorted(found, reverse=True)]

    def _grown(self, name: str) -> list[dict[str, Any]]:
        """The whole lines that a file has gained."""
        if self._room.full:
            return []
        begin = self._read.get(name, 0)
        path = self.folder / name
        try:
            if name.endswith(".gz"):
                if begin:
                    return []
                raw, _complete = lines.load(path)
                self._read[name] = len(raw) or 1
                return lines.parse(raw, self._room)[0]
            raw = lines.read_from(path, begin, _AT_ONCE)
        except OSError:
            return []
        complete = raw[: raw.rfind(b"\n") + 1]
        self._read[name] = begin + len(complete)
        return lines.parse(complete, self._room)[0]
