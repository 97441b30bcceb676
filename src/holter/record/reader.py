"""Opens a record: whole, live, cut off, damaged or foreign. Nothing in it is ever executed."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from holter.errors import DamagedRecord, UnknownRun
from holter.record import lines, place, ring_format
from holter.record.events.run import RunFacts
from holter.record.events.schema import Line, Reading
from holter.record.labels import read_labels
from holter.record.ring_reader import NotARing, RingView
from holter.record.steps import devices, window
from holter.record.tail import read_tail

L = TypeVar("L", bound=Line)
P = TypeVar("P", bound=Reading)

_MOST_FACTS = 1 << 20  # bytes of record.json
_MOST_FILES = 10_000  # segments of a timeline: one for each ten minutes
_MOST_AGENT_FILES = 1000


@dataclass
class Record:
    """A run in memory: the only input of diagnosis and views."""

    meta: dict[str, Any]
    events: list[dict[str, Any]] = field(default_factory=list)
    timeline: list[dict[str, Any]] = field(default_factory=list)
    output: str = ""
    live: bool = False
    recorder_lost: bool = False
    damage: list[str] = field(default_factory=list)
    sources: dict[str, list[str]] = field(default_factory=dict)

    @property
    def facts(self) -> RunFacts:
        """What is known of the start."""
        return RunFacts.parse(self.meta)

    def source(self, path: str) -> list[str]:
        """The lines of a file of the user's, as it was when the run first named it; none where it was not kept."""
        return self.sources.get(path, [])

    def keep_sources(self, found: list[dict[str, Any]]) -> None:
        """Take in the lines of sources.jsonl; of a file that is there twice the first, as it ran."""
        for line in found:
            if isinstance(line.get("file"), str) and isinstance(line.get("text"), str):
                self.sources.setdefault(line["file"], line["text"].split("\n"))

    def of(self, kind: type[L]) -> list[L]:
        """The lines of one kind, of the events or of the timeline, as the schema has them."""
        return [kind.parse(line) for line in (*self.events, *self.timeline) if line["k"] == kind.KIND]

    def readings(self, probe: type[P]) -> list[tuple[float, P]]:
        """One probe's readings with their time on the monotonic clock."""
        return [
            (line["m"], probe.parse(line[probe.PROBE]))
            for line in self.timeline
            if line["k"] == "sample" and isinstance(line.get(probe.PROBE), dict)
        ]


def find(name: str | None, base: Path | None = None) -> Path:
    """A run's folder: the last one, one by its id or its name, or a record's folder."""
    base = base or place.home()
    ids = place.run_ids(base)
    if name is None:
        if not ids:
            raise UnknownRun(f"no run has been recorded in {base}", "Start one with: holter run -- COMMAND")
        # A run that could not write its first line, on a full disk, is not the one that is asked for.
        folders = [place.runs_folder(base) / run_id for run_id in ids]
        return next((folder for folder in reversed(folders) if os.path.lexists(folder / place.META)), folders[-1])
    if name in ids:
        return place.runs_folder(base) / name
    folder = Path(name)
    if os.path.isdir(folder):  # unlike Path.is_dir it takes any name, also one that is too long for a file
        if not os.path.lexists(folder / place.META):
            raise DamagedRecord(f"{name} is a folder without {place.META}, so it is not a record of Holter's")
        return folder
    for found in named(name, base):
        return found
    raise UnknownRun(f"there is no run {name!r} in {base}", "See the runs with: holter ls")


def named(name: str, base: Path) -> Iterator[Path]:
    """The folders of all runs with this name, the newest first."""
    for run_id in reversed(place.run_ids(base)):
        folder = place.runs_folder(base) / run_id
        with contextlib.suppress(DamagedRecord):
            if read_meta(folder).get("name") == name:
                yield folder


def read_meta(folder: Path) -> dict[str, Any]:
    """The facts of the start, with the name that people gave it since.

    A record without them can't be told from any other folder.
    """
    try:
        raw = lines.read_bytes(folder / place.META, _MOST_FACTS)
        meta = lines.loads(raw) if lines.Room(values=100_000).takes(raw) else None
    except OSError as error:
        raise DamagedRecord(f"{folder / place.META} can't be read: {error.strerror or 'not a file'}") from None
    except (ValueError, RecursionError):
        raise DamagedRecord(f"{folder / place.META} is damaged: it is not JSON") from None
    if not isinstance(meta, dict) or type(meta.get("schema")) is not int:
        raise DamagedRecord(f"{folder / place.META} is not a record of Holter's")
    if meta["schema"] > place.SCHEMA:
        raise DamagedRecord(
            f"{folder} was written by a newer Holter (schema {meta['schema']})",
            "Upgrade with: pip install -U holter",
        )
    renamed = read_labels(folder).name
    return {**meta, "name": renamed} if renamed else meta


def open_record(folder: Path) -> Record:
    """Read a record; what is damaged is left out and named."""
    record = Record(read_meta(folder))
    room = lines.Room()
    for name in (place.EVENTS, place.KEEPER):
        if os.path.lexists(folder / name):
            record.events += _read(record, folder / name, room)
    if os.path.lexists(folder / place.SOURCES):
        record.keep_sources(_read(record, folder / place.SOURCES, room))
    _read_timeline(record, folder / place.TIMELINE, room)
    settle(record, folder)
    if record.recorder_lost:
        _add_what_agents_left(record, folder, room)
    record.events.sort(key=lambda line: float(line["m"]))
    record.timeline.sort(key=lambda line: float(line["m"]))
    return record


def settle(record: Record, folder: Path, *, output: bool = True) -> None:
    """Take in the end of the output, and tell whether the run is still on."""
    if output:
        record.output = read_tail(folder / place.TAIL).decode("utf-8", "replace")
    # What `holter attach` has left running is recorded no longer.
    ended = any(line["k"] in ("end", "detached") for line in record.events)
    alive = not ended and may_be_live(record.meta)
    record.live = alive
    record.recorder_lost = not ended and not alive


def _read(record: Record, path: Path, room: lines.Room) -> list[dict[str, Any]]:
    if room.full:
        return []
    found, bad = lines.read_file(path, room)
    if bad:
        record.damage.append(f"{path.name}: {bad} lines could not be read")
    if room.full:
        record.damage.append(f"{path.name} is larger than a record of Holter's can be: the rest was not read")
    return found


def _read_timeline(record: Record, folder: Path, room: lines.Room) -> None:
    """All segments, the newest first, since the end is what is asked for; as far as a record of ours can go."""
    if folder.is_symlink():
        record.damage.append(f"{folder.name} is a link that leads out of the record, and was not read")
        return
    for segment in segments(folder):
        if room.full:
            return
        name, raw, whole = _segment(folder, segment)
        found, bad = lines.parse(raw, room)
        record.timeline += found
        if room.full:
            older = f"{name} and older files are larger than a record of Holter's can be: they were not read"
            record.damage.append(older)
        if bad or not whole:
            record.damage.append(f"{name}: {max(bad, 1)} lines could not be read")


def segments(folder: Path) -> list[str]:
    """The names of a timeline's segments without their endings, the newest first."""
    try:
        names = {entry.name.partition(".")[0] for entry in os.scandir(folder) if ".jsonl" in entry.name}
    except OSError:
        return []
    return sorted(names, reverse=True)[:_MOST_FILES]


def _segment(folder: Path, segment: str) -> tuple[str, bytes, bool]:
    """One segment's bytes; of one that is there twice, since a kill came while it was packed, only the packed one."""
    plain, packed = f"{segment}.jsonl", f"{segment}.jsonl.gz"
    for name in (packed, plain, packed):  # again: a living recorder may have packed it between the two looks
        try:
            return name, *lines.load(folder / name)
        except FileNotFoundError:
            continue
        except OSError:
            return name, b"", False
    return plain, b"", True


def may_be_live(meta: dict[str, Any]) -> bool:
    """Tell by the facts of the start alone whether a run could still be on: its recorder is here, and alive."""
    return _same_machine(meta) and recorder_alive(meta)


def _same_machine(meta: dict[str, Any]) -> bool:
    return meta.get("host") == socket.gethostname() and meta.get("boot_id") in (None, boot_id())


@cache
def boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def recorder_alive(meta: dict[str, Any]) -> bool:
    return still_there(meta.get("recorder_pid"), meta.get("recorder_start"))


def still_there(pid: Any, started: Any) -> bool:
    """True while the process with this number is the one that began then, as `start_time` told it."""
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        pass
    except (ProcessLookupError, OverflowError):
        return False
    if not sys.platform.startswith("linux"):
        return True  # a number that was used again can't be told apart there
    return isinstance(started, int) and start_time(pid) == started


def start_time(pid: int) -> int | None:
    """When a process began, in the kernel's ticks: tells a process from a later one with the same number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] == b"Z" else int(fields[19])


def _add_what_agents_left(record: Record, folder: Path, room: lines.Room) -> None:
    """The recorder is gone: what the agents wrote after its last look is still in their own files."""
    folders = [folder / place.AGENT_FILES]
    left = record.meta.get("guest_dir")
    # Only a folder that could be a agents' one: a record from elsewhere may name any.
    if isinstance(left, str) and Path(left).name.startswith("holter-") and _same_machine(record.meta):
        folders.append(Path(left))
    offset = _number(record.meta.get("started")) - _number(record.meta.get("mono"))
    told = {_key(line) for line in record.events}
    # By time and not by number: a process that was given the pid of an earlier one counts from 0 again.
    seen: dict[Any, float] = {}
    for line in record.timeline:
        if line["k"] == "steps" and isinstance(line.get("pid"), int):
            seen[line["pid"]] = max(seen.get(line["pid"], 0.0), float(line["m"]))
    for place_ in folders:
        if not place_.is_dir() or place_.is_symlink():
            continue
        for path in sorted(place_.glob("*.jsonl"))[:_MOST_AGENT_FILES]:
            found = _read(Record({}), path, room)
            fresh = [line for line in found if _key(line) not in told]
            told |= {_key(line) for line in fresh}
            record.events += fresh
        for path in sorted(place_.glob("*.ring"))[:_MOST_AGENT_FILES]:
            try:
                view = RingView(lines.read_bytes(path, ring_format.SIZE))
                slots = [slot for slot in view.slots() if slot.time > seen.get(view.pid, 0.0)]
            except (OSError, NotARing):
                continue
            steps = window(view.pid, slots, offset)
            if steps:
                record.timeline.append(steps)
            record.timeline += devices(view.pid, slots, offset)


def _key(line: dict[str, Any]) -> tuple[Hashable, str, float]:
    """What tells an agent's line from another."""
    pid = line.get("pid")
    return pid if isinstance(pid, int) else None, line["k"], line["m"]


def _number(value: Any) -> float:
    """A number of a record that may be anyone's; 0 for what is none."""
    try:
        found = float(value) if isinstance(value, (int, float)) else 0.0
    except OverflowError:
        return 0.0
    return found if math.isfinite(found) else 0.0
