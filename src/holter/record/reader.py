"""Opens a record: whole, live, cut off, damaged or foreign. Nothing in it is ever executed."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holter.errors import DamagedRecord, UnknownRun
from holter.record import lines, place
from holter.record.ring_reader import NotARing, RingView
from holter.record.steps import devices, window
from holter.record.tail import read_tail


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

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.events if line["k"] == kind]

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.timeline if line["k"] == kind]

    def samples(self, key: str) -> list[tuple[float, dict[str, Any]]]:
        """One probe's readings with their time on the monotonic clock."""
        return [
            (line["m"], line[key])
            for line in self.timeline
            if line["k"] == "sample" and isinstance(line.get(key), dict)
        ]


def find(name: str | None, base: Path | None = None) -> Path:
    """A run's folder: the last one, one by its id or its --name, or a record's folder."""
    base = base or place.home()
    ids = place.run_ids(base)
    if name is None:
        if not ids:
            raise UnknownRun(f"no run has been recorded in {base}", "Start one with: holter run -- COMMAND")
        return place.runs_folder(base) / ids[-1]
    if name in ids:
        return place.runs_folder(base) / name
    folder = Path(name)
    if folder.is_dir():
        if not (folder / place.META).exists():
            raise DamagedRecord(f"{name} is a folder but holds no {place.META}, so it is no record of Holter's")
        return folder
    for run_id in reversed(ids):
        try:
            if read_meta(place.runs_folder(base) / run_id).get("name") == name:
                return place.runs_folder(base) / run_id
        except DamagedRecord:
            continue
    raise UnknownRun(f"there is no run {name!r} in {base}", "See the runs with: holter ls")


def read_meta(folder: Path) -> dict[str, Any]:
    """The facts of the start; a record without them can't be told from any other folder."""
    try:
        with open(folder / place.META, "rb") as file:
            meta = json.loads(file.read(4 << 20))
    except OSError as error:
        raise DamagedRecord(f"{folder / place.META} can't be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise DamagedRecord(f"{folder / place.META} is damaged: it is not JSON") from None
    if not isinstance(meta, dict) or not isinstance(meta.get("schema"), int):
        raise DamagedRecord(f"{folder / place.META} is not a record of Holter's")
    if meta["schema"] > place.SCHEMA:
        raise DamagedRecord(
            f"{folder} was written by a newer Holter (schema {meta['schema']})",
            "Upgrade with: pip install -U holter",
        )
    return meta


def open_record(folder: Path) -> Record:
    """Read a record; what is damaged is left out and named."""
    record = Record(read_meta(folder))
    record.events, bad = lines.read_file(folder / place.EVENTS) if (folder / place.EVENTS).exists() else ([], 0)
    if bad:
        record.damage.append(f"{place.EVENTS}: {bad} lines could not be read")
    if (folder / place.KEEPER).exists():
        kept, _bad = lines.read_file(folder / place.KEEPER)
        record.events += kept
    for path in sorted((folder / place.TIMELINE).glob("*.jsonl*")):
        if path.name.endswith((".jsonl", ".jsonl.gz")):
            found, bad = lines.read_file(path)
            record.timeline += found
            if bad:
                record.damage.append(f"{path.name}: {bad} lines could not be read")
    record.output = read_tail(folder / place.TAIL).decode("utf-8", "replace")
    ended = any(line["k"] == "end" for line in record.events)
    left_running = any(line["k"] == "detached" for line in record.events)
    alive = left_running or (not ended and _same_machine(record.meta) and recorder_alive(record.meta))
    record.live = alive
    record.recorder_lost = not ended and not alive
    if record.recorder_lost:
        _add_what_guests_left(record, folder)
    record.events.sort(key=lambda line: float(line["m"]))
    record.timeline.sort(key=lambda line: float(line["m"]))
    return record


def _same_machine(meta: dict[str, Any]) -> bool:
    return meta.get("host") == socket.gethostname() and meta.get("boot_id") in (None, boot_id())


def boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def recorder_alive(meta: dict[str, Any]) -> bool:
    pid = meta.get("recorder_pid")
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return False
    started = start_time(pid)
    return started is None or meta.get("recorder_start") in (None, started)


def start_time(pid: int) -> int | None:
    """When a process began, in the kernel's ticks: tells a process from a later one with the same number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] == b"Z" else int(fields[19])


def _add_what_guests_left(record: Record, folder: Path) -> None:
    """The recorder is gone: what the beacons wrote after its last look is still in their own files."""
    folders = [folder / place.GUESTS]
    left = record.meta.get("guest_dir")
    if isinstance(left, str) and _same_machine(record.meta):
        folders.append(Path(left))
    offset = float(record.meta.get("started", 0.0)) - float(record.meta.get("mono", 0.0))
    told = {(line.get("pid"), line["k"], line["m"]) for line in record.events}
    seen: dict[Any, int] = {}
    for line in record.timeline:
        if line["k"] == "steps" and isinstance(line.get("seq"), int):
            seen[line.get("pid")] = max(seen.get(line.get("pid"), -1), line["seq"])
    for place_ in folders:
        if not place_.is_dir():
            continue
        for path in place_.glob("*.jsonl"):
            found, _bad = lines.read_file(path)
            fresh = [line for line in found if (line.get("pid"), line["k"], line["m"]) not in told]
            told |= {(line.get("pid"), line["k"], line["m"]) for line in fresh}
            record.events += fresh
        for path in place_.glob("*.ring"):
            try:
                view = RingView(path.read_bytes())
            except (OSError, NotARing):
                continue
            slots = list(view.slots(seen.get(view.pid, -1)))
            steps = window(view.pid, slots, offset)
            if steps:
                record.timeline.append(steps)
                seen[view.pid] = max(slot.seq for slot in slots)
            record.timeline += devices(view.pid, slots, offset)
