"""What the beacons say: drains their rings and their lines into the record, and knows who plays which part."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

from holter.record import lines
from holter.record.ring_format import STEP
from holter.record.ring_reader import RingView, Slot
from holter.record.steps import devices, window

_MOST_AT_ONCE = 1 << 20


class _Ring:
    def __init__(self, path: Path) -> None:
        with open(path, "rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.view = RingView(self.map)
        self.seen = -1
        self.steps = 0

    def fresh(self) -> tuple[list[Slot], int]:
        """Slots not seen before, and how many steps were overwritten before they could be."""
        slots = list(self.view.slots(self.seen))
        if not slots:
            return [], 0
        self.seen = slots[-1].seq
        windows = [slot for slot in slots if slot.kind == STEP]
        if not windows:
            return slots, 0
        before, self.steps = self.steps, windows[-1].step
        return slots, max(0, self.steps - before - sum(slot.count for slot in windows))


class Guests:
    """All guests of a run, found by the files they make."""

    def __init__(self, folder: Path | None, offset: float) -> None:
        self.folder = folder
        self.offset = offset  # wall clock minus monotonic clock
        self.rings: dict[int, _Ring] = {}
        self.roles: dict[int, str] = {}
        self.armed: set[int] = set()  # processes whose stacks can be asked for
        self._read: dict[str, int] = {}
        self._refused: set[str] = set()

    def drain(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Events and timeline lines since the last time."""
        events: list[dict[str, Any]] = []
        timeline: list[dict[str, Any]] = []
        for entry in self._entries():
            if entry.name.endswith(".jsonl"):
                events += self._new_lines(entry)
            elif entry.name.endswith(".ring"):
                self._open(entry)
            elif entry.name.endswith(".stacks"):
                self.armed.add(_pid_of(entry.name))
        for line in events:
            if line["k"] == "guest" and isinstance(line.get("pid"), int):
                self.roles[line["pid"]] = str(line.get("role"))
        for pid, ring in self.rings.items():
            slots, lost = ring.fresh()
            steps = window(pid, slots, self.offset)
            if steps:
                if lost:
                    steps["lost"] = lost
                timeline.append(steps)
            timeline += devices(pid, slots, self.offset)
        return events, timeline

    def states(self, alive: set[int]) -> list[dict[str, Any]]:
        """What each living guest is doing now."""
        return [ring.view.state() for pid, ring in self.rings.items() if pid in alive]

    def role(self, pid: int) -> str:
        return self.roles.get(pid, "other")

    def _entries(self) -> list[os.DirEntry[str]]:
        if self.folder is None:
            return []
        try:
            return list(os.scandir(self.folder))
        except OSError:
            return []

    def _new_lines(self, entry: os.DirEntry[str]) -> list[dict[str, Any]]:
        at = self._read.get(entry.name, 0)
        try:
            if entry.stat(follow_symlinks=False).st_size <= at:
                return []
            with open(entry.path, "rb") as file:
                file.seek(at)
                raw = file.read(_MOST_AT_ONCE)
        except OSError:
            return []
        whole = raw.rfind(b"\n") + 1  # the rest is still being written
        if not whole and len(raw) == _MOST_AT_ONCE:
            whole = len(raw)  # no line of ours is that long
        self._read[entry.name] = at + whole
        found, _bad = lines.parse(raw[:whole])
        return found

    def _open(self, entry: os.DirEntry[str]) -> None:
        pid = _pid_of(entry.name)
        if pid in self.rings or entry.name in self._refused:
            return
        try:
            self.rings[pid] = _Ring(Path(entry.path))
        except ValueError:
            pass  # still empty, or its header is not written yet: look again at the next tick
        except OSError:
            self._refused.add(entry.name)


def _pid_of(name: str) -> int:
    digits = name.partition(".")[0]
    return int(digits) if digits.isdigit() else -1
