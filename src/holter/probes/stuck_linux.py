"""Where a process that makes no progress waits: state, kernel function, system call, the file behind it."""

from __future__ import annotations

import os
import sys
from typing import Any

from holter.probes.procfs_linux import parse_stat, read_short, read_whole, text

MOST_THREADS = 64
_NUMBERS = {  # of a system call, on x86_64 and on aarch64
    "read": (0, 63),
    "write": (1, 64),
    "poll": (7, None),
    "mmap": (9, 222),
    "ioctl": (16, 29),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "readv": (19, 65),
    "writev": (20, 66),
    "pipe": (22, None),
    "select": (23, None),
    "sched_yield": (24, 124),
    "pause": (34, None),
    "nanosleep": (35, 101),
    "connect": (42, 203),
    "accept": (43, 202),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    "wait4": (61, 260),
    "fcntl": (72, 25),
    "flock": (73, 32),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "rt_sigtimedwait": (128, 137),
    "rt_sigsuspend": (130, 133),
    "sync": (162, 81),
    "futex": (202, 98),
    "clock_nanosleep": (230, 115),
    "epoll_wait": (232, None),
    "waitid": (247, 95),
    "openat": (257, 56),
    "newfstatat": (262, 79),
    "pselect6": (270, 72),
    "ppoll": (271, 73),
    "epoll_pwait": (281, 22),
    "accept4": (288, 242),
    "recvmmsg": (299, 243),
    "statx": (332, 291),
    "io_uring_enter": (426, 426),
    "epoll_pwait2": (441, 441),
    "futex_waitv": (449, 449),
}
CALLS = {
    machine: {numbers[at]: name for name, numbers in _NUMBERS.items() if numbers[at] is not None}
    for at, machine in enumerate(("x86_64", "aarch64"))
}
# Their first argument is a descriptor.
_ON_FILES = ("read", "write", "readv", "writev", "pread64", "pwrite64", "fsync", "fdatasync", "flock", "fcntl", "ioctl")
_ON_SOCKETS = ("recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg", "connect", "accept", "accept4")
_ON_QUEUES = ("epoll_wait", "epoll_pwait", "epoll_pwait2", "io_uring_enter")
_ON_A_FILE = frozenset((*_ON_FILES, *_ON_SOCKETS, *_ON_QUEUES))
_PRIVATE = 0x80  # of a futex: none but the threads of this process can end the wait
_MOST_POLLED = 64


def parse_syscall(raw: bytes, machine: str) -> dict[str, Any]:
    """`nr`, `syscall` and `fd` from /proc/<pid>/syscall; empty while the thread runs or is not in a call.

    Of a futex also `timed` (it wakes by itself) and `shared` (another process may wake it), of a poll `polled`: where
    its list of descriptors lies, and how long that is.
    """
    fields = raw.split()
    if len(fields) < 2 or fields[0] == b"running":
        return {}
    number = int(fields[0])
    if number < 0:  # blocked in the kernel, but not by a call of its own: a page fault, for one
        return {}
    found: dict[str, Any] = {"nr": number}
    name = CALLS.get(machine, {}).get(number)
    if name is not None:
        found["syscall"] = name
        if name in _ON_A_FILE:
            found["fd"] = int(fields[1], 16) & 0xFFFFFFFF
        elif name == "futex" and len(fields) > 4:
            found["timed"] = int(fields[4], 16) != 0
            found["shared"] = not int(fields[2], 16) & _PRIVATE
        elif name in ("poll", "ppoll") and len(fields) > 2:
            found["polled"] = (int(fields[1], 16), int(fields[2], 16))
    return found


def polled_by(pid: int, thread: dict[str, Any], proc: str = "/proc") -> list[str] | None:
    """What the descriptors that a thread polls lead to; None where that can't be read."""
    at, many = thread.get("polled", (0, 0))
    if not at or not 0 < many <= _MOST_POLLED:
        return None
    try:
        with open(f"{proc}/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(at)
            listed = memory.read(8 * many)  # struct pollfd: a number of four bytes, and two of two
        numbers = [int.from_bytes(listed[n : n + 4], sys.byteorder, signed=True) for n in range(0, len(listed), 8)]
        return [os.readlink(f"{proc}/{pid}/fd/{number}") for number in numbers if number >= 0]
    except (OSError, ValueError, OverflowError):
        return None


def _thread(folder: str, pid: int, proc: str, machine: str) -> dict[str, Any] | None:
    """One thread; each piece is had by itself, since each has its own permission."""
    try:
        stat = parse_stat(read_short(f"{folder}/stat", 2048))
    except (OSError, ValueError, IndexError):
        return None
    found: dict[str, Any] = {"tid": stat.pid, "name": stat.name, "state": stat.state}
    try:
        wchan = text(read_short(f"{folder}/wchan", 128)).strip()
        if wchan not in ("", "0"):
            found["wchan"] = wchan
    except OSError:
        pass
    try:
        found.update(parse_syscall(read_short(f"{folder}/syscall", 512), machine))
    except (OSError, ValueError):
        pass
    if "fd" in found:
        try:
            found["path"] = os.readlink(f"{proc}/{pid}/fd/{found['fd']}")
        except OSError:
            pass
    try:
        lines = text(read_whole(f"{folder}/stack")).splitlines()
        stack = [line.partition("] ")[2] for line in lines if "] " in line]
        if stack:
            found["stack"] = stack
    except OSError:
        pass
    return found


def thread_waiting_in(pid: int, tid: int, proc: str = "/proc", machine: str | None = None) -> dict[str, Any]:
    """What one thread waits for; empty when it is gone."""
    return _thread(f"{proc}/{pid}/task/{tid}", pid, proc, machine or os.uname().machine) or {}


def waiting_in(pid: int, proc: str = "/proc", machine: str | None = None) -> dict[str, Any]:
    """What the process waits for: its main thread's fields, and `threads` with all of them, main first.

    Empty when the process is gone. `wchan`, `syscall`, `path` and `stack` are there where they may be read.
    """
    machine = machine or os.uname().machine
    try:
        tids = sorted(int(name) for name in os.listdir(f"{proc}/{pid}/task") if name.isdecimal())
    except OSError:
        return {}
    tids.sort(key=lambda tid: tid != pid)
    threads = []
    for tid in tids[:MOST_THREADS]:
        thread = _thread(f"{proc}/{pid}/task/{tid}", pid, proc, machine)
        if thread is not None:
            threads.append(thread)
    if not threads:
        return {}
    found = {key: value for key, value in threads[0].items() if key != "tid"}
    return {"pid": pid, **found, "thread_count": len(tids), "threads": threads}
