"""What the agents say: drains their rings and their lines into the record, and knows who plays which part.

What a process leaves behind is let go as soon as it is drained: shared memory may be small, and is the user's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from holter.record import lines
from holter.record.gather import bring_home
from holter.record.reader import start_time
from holter.record.ring_format import STEP
from holter.record.ring_reader import NotARing, RingView, Slot
from holter.record.steps import devices, window
from holter.recorder.loop.processes import lives

_MOST_AT_ONCE = 1 << 20
_SETTLES_S = 5.0  # seconds after its end in which somebody may still read what a process answered
_MOST_STATES = 64  # of processes that have ended, told once more at the end of the run


class _File:
    """A file's bytes by slices. Not mapped: whoever cuts it off costs us the ring, and not our life."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __len__(self) -> int:
        return os.fstat(self.fd).st_size

    def __getitem__(self, part: slice) -> bytes:
        begin = part.start or 0
        return os.pread(self.fd, part.stop - begin, begin)


class _Ring:
    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            self.view = RingView(_File(self.fd))
        except BaseException:
            os.close(self.fd)
            raise
        self.process = start_time(self.view.pid)
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


class Agents:
    """All agents of a run, found by the files they make."""

    def __init__(self, folder: Path | None, offset: float, home: Path | None = None) -> None:
        self.folder = folder
        self.home = home  # the record, for what processes leave behind
        self.offset = offset  # wall clock minus monotonic clock
        self.rings: dict[int, _Ring] = {}  # of each process the one that it writes into now
        self._all: dict[str, _Ring] = {}  # also those of earlier processes with the same number, until they are drained
        self.roles: dict[int, str] = {}
        self.armed: set[int] = set()  # processes whose stacks can be asked for
        self._read: dict[str, int] = {}
        self._refused: set[str] = set()
        self._at_end: set[str] = set()  # files of lines that have not grown since the last time
        self._ended: dict[int, dict[str, Any]] = {}  # the last state of processes whose ring was let go
        self._gone: dict[int, float] = {}  # since when

    def drain(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Events and timeline lines since the last time."""
        events: list[dict[str, Any]] = []
        timeline: list[dict[str, Any]] = []
        for entry in self._entries():
            if entry.name.endswith(".jsonl"):
                events += self._new_lines(entry)
            elif entry.name.endswith(".ring"):
                self._open(entry)
            elif entry.name.endswith(".stacks") and _pid_of(entry.name) not in self._gone:
                self.armed.add(_pid_of(entry.name))
        for line in events:
            if line["k"] == "guest" and isinstance(line.get("pid"), int):
                self.roles[line["pid"]] = str(line.get("role"))
        for ring in sorted(self._all.values(), key=lambda ring: ring.view.started):
            timeline += self._steps(ring)
        return events, timeline

    def _steps(self, ring: _Ring) -> list[dict[str, Any]]:
        pid = ring.view.pid
        try:
            slots, lost = ring.fresh()
        except (OSError, NotARing):
            self._drop(ring)  # someone has cut it off
            return []
        steps = window(pid, slots, self.offset)
        if steps and lost:
            steps["lost"] = lost
        return [*([steps] if steps else []), *devices(pid, slots, self.offset)]

    def let_go(self, present: set[int], now: float) -> list[dict[str, Any]]:
        """Free what processes hold that have ended; returns timeline lines with what they wrote since the last time."""
        timeline: list[dict[str, Any]] = []
        for ring in list(self._all.values()):
            pid = ring.view.pid
            if self.rings.get(pid) is not ring or self._has_ended(pid, ring.process):
                timeline += self._steps(ring)
                self._remember(ring)
                self._drop(ring)
                if _unlink(ring.path):
                    self._refused.discard(os.path.basename(ring.path))
        for entry in self._entries():
            pid = _pid_of(entry.name)
            if pid < 0 or pid in self.rings or pid in present:
                self._gone.pop(pid, None)
                continue
            if not self._has_ended(pid, None):
                continue
            since = self._gone.setdefault(pid, now)
            self.armed.discard(pid)
            if now - since < _SETTLES_S or (entry.name.endswith(".jsonl") and entry.name not in self._at_end):
                continue
            if self.home is not None:
                bring_home(Path(entry.path), self.home)
            else:
                _unlink(entry.path)
            self._read.pop(entry.name, None)
            self._at_end.discard(entry.name)
        return timeline

    def _has_ended(self, pid: int, began: int | None) -> bool:
        """True when the process is no more, or its number another's now; False while anything speaks against it."""
        now = start_time(pid)
        if (now is not None and began in (None, now)) or (now is None and lives(pid)):
            return False
        # Its number may be that of another namespace: an agent that still listens lives.
        try:
            os.close(os.open(f"{self.folder}/{pid}.ask", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError:
            return True
        return now is not None  # the one who listens has the number now

    def _remember(self, ring: _Ring) -> None:
        try:
            state = ring.view.state()
        except (OSError, NotARing):
            return
        self._ended[state["pid"]] = state
        if len(self._ended) > _MOST_STATES:
            del self._ended[min(self._ended, key=lambda pid: int(self._ended[pid]["step"]))]

    def _drop(self, ring: _Ring) -> None:
        if self._all.pop(ring.path, None) is None:
            return
        self._refused.add(os.path.basename(ring.path))
        if self.rings.get(ring.view.pid) is ring:
            del self.rings[ring.view.pid]
        os.close(ring.fd)

    def states(self, alive: set[int]) -> list[dict[str, Any]]:
        """What each living agent is doing now."""
        return [state for pid, ring in list(self.rings.items()) if pid in alive and (state := self._state(ring))]

    def last_states(self) -> list[dict[str, Any]]:
        """What each agent did last, also of those that have ended."""
        known = self.states(set(self.rings))
        return [*known, *(state for pid, state in self._ended.items() if pid not in self.rings)]

    def _state(self, ring: _Ring) -> dict[str, Any] | None:
        try:
            return ring.view.state()
        except (OSError, NotARing):
            self._drop(ring)
            return None

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
            self._at_end.add(entry.name)
            if entry.stat(follow_symlinks=False).st_size <= at:
                return []
            with open(entry.path, "rb") as file:
                file.seek(at)
                raw = file.read(_MOST_AT_ONCE)
        except OSError:
            return []
        complete = raw.rfind(b"\n") + 1  # the rest is still being written
        if not complete and len(raw) == _MOST_AT_ONCE:
            complete = len(raw)  # no line of ours is that long
        if complete:
            self._at_end.discard(entry.name)
        self._read[entry.name] = at + complete
        found, _bad = lines.parse(raw[:complete])
        return found

    def _open(self, entry: os.DirEntry[str]) -> None:
        if entry.name in self._refused or entry.path in self._all:
            return
        try:
            ring = _Ring(entry.path)
        except ValueError:
            return  # still empty, or its header is not written yet: look again at the next tick
        except OSError:
            self._refused.add(entry.name)
            return
        self._all[ring.path] = ring
        before = self.rings.get(ring.view.pid)
        if before is None or before.view.started < ring.view.started:
            self.rings[ring.view.pid] = ring


def _pid_of(name: str) -> int:
    digits = name.partition(".")[0]
    return int(digits) if digits.isdigit() else -1


def _unlink(path: str) -> bool:
    try:
        os.unlink(path)
        return True
    except OSError:
        return False
