"""Processes that will never go on by themselves: each waits for another of them, or for a lock that none releases.

A thread that is blocked waits for whoever can end its wait. At a lock that is another thread of its own process; at a
pipe those who hold the other end; in a wait for a child that child. Where everyone who is waited for, and everyone whom
they wait for, is in such a wait, none will ever end. One thread that may go on by itself (it runs, sleeps, reads a
file, listens to the network), and nothing is said. Only what the kernel shows counts: no names, no lines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from holter.probes.procfs_linux import open_paths, opened_for_writing, pids_in, read_short
from holter.probes.stuck_linux import polled_by, waiting_in

_WRITES, _READS, _CHILDREN = ("write", "writev"), ("read", "readv"), ("wait4", "waitid")
_FUTEXES = ("futex", "futex_waitv")
_POLLS = ("poll", "ppoll")
# What a thread beside the main one is in while it serves others: a listener, a driver's own thread for events.
_SERVES = ("accept", "accept4", *_POLLS)
_MOST_PROCESSES = 64

Ends = dict[str, list[tuple[int, bool]]]


def circle_of(pid: int, parents: dict[int, int], *, ours: str = "", proc: str = "/proc") -> list[dict[str, Any]]:
    """Who waits for what in the circle of pipes that this process is in, itself first; empty where none is sure.

    `parents` are those of the run's tree. Who else holds a pipe's end, outside of it, may well go on. `ours` is the
    folder of the pipes at which threads of Holter's own wait.
    """
    ends = cache(lambda: _ends(proc))  # looked up only once someone is found at a pipe
    met: dict[int, dict[str, Any]] = {}
    ahead = [pid]
    while ahead:
        one = ahead.pop()
        if one in met:
            continue
        wait = _wait(one, ends, parents, ours, proc)
        if wait is None or len(met) >= _MOST_PROCESSES:
            return []
        met[one] = wait
        ahead += wait.pop("waits_for")
    return [met[pid], *[wait for one, wait in met.items() if one != pid]]


def _wait(pid: int, ends: Callable[[], Ends], parents: dict[int, int], ours: str, proc: str) -> Any:
    """The one wait of a process, and whom it waits for; None for one that may go on by itself."""
    threads = [one for one in waiting_in(pid, proc).get("threads", []) if not _is_ours(one, ours)]
    blocked = [thread for thread in threads if thread.get("syscall") not in _FUTEXES]
    if len(blocked) != 1 or any(thread.get("state") not in ("S", "D") for thread in threads):
        return None
    thread = blocked[0]
    call, path = thread.get("syscall"), str(thread.get("path", ""))
    if call in _CHILDREN:
        others = _children(pid, parents)
    elif path.startswith("pipe:") and call in (*_WRITES, *_READS):
        others = _at_the_other_end(pid, path, ends(), reads=call in _READS)
    else:
        return None
    return {"pid": pid, "syscall": call, "path": path, "waits_for": others} if others else None


def is_locked(
    pid: int, parents: dict[int, int], *, ours: str = "", helpers: bool = True, proc: str = "/proc"
) -> bool | None:
    """Tell whether nothing in the run can end the wait of this process; None where the kernel does not show it.

    `ours` is the folder of the pipes at which threads of Holter's own wait. `helpers`: threads beside the main one that
    wait for a while at a time only look round, and end nobody's wait.
    """
    ends = cache(lambda: _ends(proc))
    met: set[int] = set()
    ahead = [pid]
    while ahead:
        one = ahead.pop()
        if one in met:
            continue
        threads = waiting_in(one, proc).get("threads", [])
        if not threads or len(met) >= _MOST_PROCESSES:
            return None
        met.add(one)
        for thread in threads:
            if _is_ours(thread, ours):
                continue
            if thread.get("timed") and (thread["tid"] == one or not helpers):
                return False
            others = _waits_for(one, thread, ends, parents, proc)
            if others is None:
                return None if thread.get("state") == "S" and "nr" not in thread else False
            ahead += others
    return True


def _is_ours(thread: dict[str, Any], ours: str) -> bool:
    return bool(ours) and str(thread.get("path", "")).startswith(ours)


def _waits_for(
    pid: int, thread: dict[str, Any], ends: Callable[[], Ends], parents: dict[int, int], proc: str
) -> list[int] | None:
    """The other processes that one thread waits for; None where it may go on by itself."""
    call, path, main = thread.get("syscall"), str(thread.get("path", "")), thread["tid"] == pid
    if thread.get("state") != "S":
        return None
    if call in _FUTEXES:
        # A lock that processes share can be released by any of them.
        return [one for one in parents if one != pid] if thread.get("shared") else []
    if call in _CHILDREN:
        return _children(pid, parents)
    if path.startswith("pipe:") and call in (*_WRITES, *_READS):
        return _in_the_run(_at_the_other_end(pid, path, ends(), reads=call in _READS), parents)
    if call in _POLLS:
        polled = polled_by(pid, thread, proc)
        if polled and all(one.startswith("pipe:") for one in polled):
            holders = [who for one in polled for who in _at_the_other_end(pid, one, ends(), reads=True)]
            return _in_the_run(holders, parents)
    return [] if call in _SERVES and not main else None


def _children(pid: int, parents: dict[int, int]) -> list[int]:
    return [child for child, above in parents.items() if above == pid]


def _at_the_other_end(pid: int, path: str, ends: Ends, *, reads: bool) -> list[int]:
    """Those who can end a wait at a pipe: its writers for one who reads, its readers for one who writes."""
    return sorted({who for who, may_read in ends.get(path, ()) if who != pid and may_read != reads})


def _in_the_run(holders: list[int], parents: dict[int, int]) -> list[int] | None:
    """Give them where all are known; whoever stands outside of the run may go on."""
    return holders if holders and all(one in parents for one in holders) else None


def _ends(proc: str) -> Ends:
    """Every pipe that may be seen: who holds it, and whether for reading."""
    found: Ends = {}
    for pid in pids_in(proc):
        for number, path in open_paths(pid, proc):
            if path.startswith("pipe:"):
                try:
                    info = read_short(f"{proc}/{pid}/fdinfo/{number}")
                    found.setdefault(path, []).append((pid, opened_for_writing(info) is None))
                except (OSError, ValueError):
                    continue
    return found
