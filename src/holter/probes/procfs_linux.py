"""Files of /proc and /sys, read whole, and the one line of them that every other probe needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def read_short(path: str, size: int = 8192) -> bytes:
    """A file that the kernel hands out in one piece, which most of /proc/<pid> and all of a cgroup are."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, size)
    finally:
        os.close(fd)


def read_whole(path: str) -> bytes:
    """A file of many lines: the kernel may end a read early wherever the next line does not fit its page."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while piece := os.read(fd, 65536):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)


def text(raw: bytes) -> str:
    """Bytes that a process chose itself (its name, a path), as text that JSON can always carry."""
    return raw.decode("utf-8", "replace")


class Stat(NamedTuple):
    """What /proc/<pid>/stat says, in the kernel's units: ticks and pages."""

    pid: int
    name: str
    state: str
    ppid: int
    pgrp: int
    session: int
    majflt: int
    ticks: int
    threads: int
    start: int
    rss: int
    system: int = 0


def parse_stat(line: bytes) -> Stat:
    """One line of stat; a process may call itself ') R 1 (', so its name ends at the last bracket."""
    opened = line.index(b"(")
    closed = line.rindex(b")")
    f = line[closed + 2 :].split(None, 22)
    return Stat(
        int(line[:opened]),
        text(line[opened + 1 : closed]),
        f[0].decode("ascii", "replace"),
        int(f[1]),
        int(f[2]),
        int(f[3]),
        int(f[9]),
        int(f[11]) + int(f[12]),
        int(f[17]),
        int(f[19]),
        int(f[21]),
        int(f[12]),
    )


def stat_of(pid: int, proc: str) -> Stat | None:
    """The process's stat, or None when there is no such process any more."""
    try:
        return parse_stat(read_short(f"{proc}/{pid}/stat", 2048))
    except (OSError, ValueError, IndexError):
        return None


def pids_in(proc: str) -> list[int]:
    """Every process that this /proc shows."""
    return [int(name) for name in os.listdir(proc) if name.isdecimal()]


def open_paths(pid: int, proc: str = "/proc") -> Iterator[tuple[str, str]]:
    """Every descriptor of a process, and what it is open on; none where the process is gone or another user's."""
    try:
        numbers = os.listdir(f"{proc}/{pid}/fd")
    except OSError:
        return
    for number in numbers:
        try:
            yield number, os.readlink(f"{proc}/{pid}/fd/{number}")
        except OSError:
            continue


def names_a_file(path: str) -> bool:
    """Sockets and pipes have no path, and devices no file behind it."""
    return path.startswith("/") and not path.startswith(("/dev/", "/proc/", "/memfd:"))


def opened_for_writing(fdinfo: bytes) -> int | None:
    """The mount of a descriptor that can be written to, or None when it is only read from."""
    flags = mount = None
    for line in fdinfo.split(b"\n"):
        if line.startswith(b"flags:"):
            flags = int(line[6:], 8)
        elif line.startswith(b"mnt_id:"):
            mount = int(line[7:])
    if flags is None or mount is None or flags & os.O_ACCMODE not in (os.O_WRONLY, os.O_RDWR):
        return None
    return mount


def table(raw: bytes) -> dict[str, int]:
    """Lines of `name value`, as memory.stat, vmstat and memory.events have them."""
    found = {}
    for line in raw.splitlines():
        name, _, value = line.partition(b" ")
        try:
            found[name.decode("ascii", "replace")] = int(value)
        except ValueError:
            continue
    return found
