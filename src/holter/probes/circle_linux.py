"""Processes that wait for each other through pipes, for ever: a full pipe whose reader waits for its writer.

Each thread that is blocked waits for whoever can end its wait: a write into a pipe for those who may read it, a read
for those who may write to it, a wait for a child for that child. Where everyone who is waited for, and everyone whom
they wait for, is in such a wait, none will ever end. One thread that may go on by itself, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from holter.probes.procfs_linux import open_paths, opened_for_writing, pids_in, read_short
from holter.probes.stuck_linux import waiting_in

_WRITES, _READS, _CHILDREN = ("write", "writev"), ("read", "readv"), ("wait4", "waitid")
# A thread at a futex waits for another of its own process, which is looked at too.
_PASSIVE = ("futex", "futex_waitv")
_MOST = 64  # processes

Ends = dict[str, list[tuple[int, bool]]]


def circle_of(pid: int, parents: dict[int, int], proc: str = "/proc") -> list[dict[str, Any]]:
    """Who waits for what in the circle that this process is in, itself first; empty where there is none to be sure of.

    `parents` are those of the run's tree. Who else holds a pipe's end, outside of it, may well go on.
    """
    ends = cache(lambda: _ends(proc))  # looked up only once someone is found at a pipe
    met: dict[int, dict[str, Any]] = {}
    ahead = [pid]
    while ahead:
        one = ahead.pop()
        if one in met:
            continue
        wait = _wait(one, ends, parents, proc)
        if wait is None or len(met) >= _MOST:
            return []
        met[one] = wait
        ahead += wait.pop("waits_for")
    return [met[pid], *[wait for one, wait in met.items() if one != pid]]


def _wait(pid: int, ends: Callable[[], Ends], parents: dict[int, int], proc: str) -> Any:
    """The one wait of a process, and whom it waits for; None for one that may go on by itself."""
    threads = waiting_in(pid, proc).get("threads", [])
    blocked = [thread for thread in threads if thread.get("syscall") not in _PASSIVE]
    if len(blocked) != 1 or any(thread.get("state") not in ("S", "D") for thread in threads):
        return None
    thread = blocked[0]
    call, path = thread.get("syscall"), str(thread.get("path", ""))
    if call in _CHILDREN:
        others = [child for child, above in parents.items() if above == pid]
    elif path.startswith("pipe:") and call in (*_WRITES, *_READS):
        others = sorted({who for who, may_read in ends().get(path, ()) if who != pid and may_read == (call in _WRITES)})
    else:
        return None
    return {"pid": pid, "syscall": call, "path": path, "waits_for": others} if others else None


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
