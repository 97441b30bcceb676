"""The kernel's own words about the run: kills for lack of memory, crashes, GPU faults, failing disks."""

from __future__ import annotations

import errno
import os
import re
from typing import Any

from holter.errors import NoData

_KILLED = re.compile(
    r"(?P<memcg>Memory cgroup out of memory|Out of memory)?.*?"
    r"Killed process (?P<pid>\d+) \((?P<victim>.*)\),?.*?total-vm:\d+kB, anon-rss:(?P<anon>\d+)kB",
    re.DOTALL,
)
_CHOSEN = re.compile(
    r"^oom-kill:constraint=(?P<constraint>\w+),.*?(?:oom_memcg=(?P<memcg>[^,]*),)?"
    r"(?:task_memcg=[^,]*,)?task=(?P<victim>.*),pid=(?P<pid>\d+),uid=\d+",
    re.DOTALL,
)
_SEGFAULT = re.compile(r"^(?P<victim>.*)\[(?P<pid>\d+)\]: (?:segfault at|unhandled (?:exception|level \d))", re.DOTALL)
_TRAP = re.compile(r"^traps: (?P<victim>.*)\[(?P<pid>\d+)\] (?:general protection|trap )", re.DOTALL)
_XID = re.compile(r"^NVRM: Xid \((?:PCI:)?(?P<device>[^)]*)\): (?P<xid>\d+)(?:, pid='?(?P<pid>\d+))?")
_BLOCKED = re.compile(r"^INFO: task (?P<victim>.*):(?P<pid>\d+) blocked for more than \d+ seconds", re.DOTALL)
_IO = re.compile(
    r"^(?:(?:blk_update_request|print_req_error): )?(?:critical \w+ error|I/O error), dev "
    r"|^Buffer I/O error on dev"
    r"|^EXT4-fs error \(device |^XFS \(\S+\): .*(?:I/O error|log I/O|metadata I/O)"
    r"|^BTRFS (?:error|critical) |^nfs: server \S+ not responding"
)
_HARDWARE = re.compile(r"^mce: \[Hardware Error\]|^\[Hardware Error\]|^EDAC .*\bUE\b")


def parse_text(line: str) -> dict[str, Any] | None:
    """The fields of a `kernel` event, or None for a line that is not about a run's ending."""
    if found := _CHOSEN.search(line):
        entry = _entry("oom", line, found)
        entry["oom"] = True
        entry["constraint"] = found["constraint"]
        if found["memcg"]:
            entry["memcg"] = found["memcg"]
        return entry
    if "Killed process" in line and (found := _KILLED.match(line)):
        entry = _entry("oom", line, found)
        entry["oom"] = True
        entry["anon_rss"] = int(found["anon"]) * 1024
        if found["memcg"]:
            group = found["memcg"].startswith("Memory cgroup")
            entry["constraint"] = "CONSTRAINT_MEMCG" if group else "CONSTRAINT_NONE"
        return entry
    for kind, pattern in (("segfault", _SEGFAULT), ("trap", _TRAP), ("blocked", _BLOCKED)):
        if found := pattern.match(line):
            return _entry(kind, line, found)
    if found := _XID.match(line):
        entry = _entry("xid", line, None)
        entry["xid"] = int(found["xid"])
        entry["device"] = found["device"]
        if found["pid"]:
            entry["pid"] = int(found["pid"])
        return entry
    if _IO.match(line):
        return _entry("io", line, None)
    if _HARDWARE.match(line):
        return _entry("hardware", line, None)
    return None


def _entry(kind: str, line: str, found: re.Match[str] | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": kind, "text": line, "oom": False}
    if found is not None:
        entry["pid"] = int(found["pid"])
        entry["victim"] = found["victim"]
    return entry


def parse_record(raw: bytes) -> tuple[float, str] | None:
    """The kernel's time and text of one record of /dev/kmsg; None when a program wrote it there itself."""
    head, semicolon, rest = raw.partition(b";")
    fields = head.split(b",")
    if not semicolon or len(fields) < 3:
        return None
    try:
        priority, micros = int(fields[0]), int(fields[2])
    except ValueError:
        return None
    if priority >> 3:  # the kernel marks whatever comes from outside with another facility than its own 0
        return None
    # Bytes outside printable ASCII come as \xNN; what follows the first newline is a dictionary of keys.
    text = re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), rest.split(b"\n")[0])
    return micros / 1e6, text.decode("utf-8", "replace")


class KernelLog:
    """The kernel log from now on, or what is left of it; numbers of processes in it are those of the machine, not of a
    container.
    """

    def __init__(self, path: str = "/dev/kmsg", *, from_now: bool = True) -> None:
        """Opens the log at its end, or at its oldest line; raises `NoData` where it may not be read."""
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise NoData(f"no {path} here: a container hides the kernel log of its machine") from error
        except OSError as error:
            raise NoData(
                f"the kernel log is closed to this user ({error.strerror}): "
                "`sudo sysctl kernel.dmesg_restrict=0` opens it"
            ) from error
        try:
            os.lseek(self._fd, 0, os.SEEK_END if from_now else os.SEEK_SET)
        except OSError:
            pass
        self._chosen: dict[int, dict[str, Any]] = {}
        self.missed = 0  # times the log had been overwritten before it was read
        self.oldest: float | None = None  # of the lines that were read, seconds since boot

    def drain(self) -> list[dict[str, Any]]:
        """What the kernel said about endings since the last call; `at` is its own clock, seconds since boot.

        A kill is told in two lines, who was chosen and who was killed: they come as one entry. A choice
        whose second line has not come is held back until the next call.
        """
        entries: list[dict[str, Any]] = []
        held_back = dict(self._chosen)
        while (raw := self._next()) is not None:
            record = parse_record(raw)
            if record is not None and self.oldest is None:
                self.oldest = record[0]
            entry = parse_text(record[1]) if record is not None else None
            if record is None or entry is None:
                continue
            entry["at"] = record[0]
            if entry["kind"] == "oom":
                if "anon_rss" not in entry:
                    self._chosen[entry["pid"]] = entry
                    continue
                chosen = self._chosen.pop(entry["pid"], None)
                held_back.pop(entry["pid"], None)
                if chosen is not None:
                    entry.update({key: chosen[key] for key in ("constraint", "memcg") if key in chosen})
            entries.append(entry)
        for pid in held_back:
            entries.append(self._chosen.pop(pid))
        return entries

    def _next(self) -> bytes | None:
        while self._fd >= 0:
            try:
                return os.read(self._fd, 16384) or None
            except OSError as error:
                if error.errno == errno.EPIPE:  # overrun: the next read goes on with the oldest that is left
                    self.missed += 1
                    continue
                if error.errno == errno.EINTR:
                    continue
                return None
        return None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
