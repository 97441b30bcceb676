"""Processes that wait for each other through pipes, for ever: a full pipe whose reader waits for its writer.

Each thread that is blocked waits for whoever can end its wait: a write into a pipe for those who may read it, a read
for those who may write to it, a wait for a child for that child. Where everyone who is waited for, and everyone whom
they wait for, is in such a wait, none will ever end. One thread that may go on by itself, and nothing is said.
"""

from __future__ import annotations

import os
from typing import Any

from holter.probes.procfs_linux import text
from holter.probes.stuck_linux import waiting_in

_WRITES, _READS, _CHILDREN = ("write", "writev"), ("read", "readv"), ("wait4", "waitid")
# A thread at a futex waits for another of its own process, which is looked at too.
_PASSIVE = ("futex", "futex_waitv")
_MOST = 64  # processes


def circle_of(pid: int, parents: dict[int, int], proc: str = "/proc") -> list[dict[str, Any]]:
    """Who waits for what in the circle that this process is in, itself first; empty where there is none to be sure of.

    `parents` are those of the run's tree. Who else holds a pipe's end, outside of it, may well go on.
    """
    ends = _ends(proc)
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


def _wait(pid: int, ends: dict[str, list[tuple[int, bool]]], parents: dict[int, int], proc: str) -> Any:
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
        others = sorted({who for who, may_read in ends.get(path, ()) if who != pid and may_read == (call in _WRITES)})
    else:
        return None
    return {"pid": pid, "syscall": call, "path": path, "waits_for": others} if others else None


def _ends(proc: str) -> dict[str, list[tuple[int, bool]]]:
    """Every pipe that may be seen: who holds it, and whether for reading."""
    found: dict[str, list[tuple[int, bool]]] = {}
    for pid in [int(name) for name in os.listdir(proc) if name.isdecimal()]:
        try:
            descriptors = os.listdir(f"{proc}/{pid}/fd")
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                path = os.readlink(f"{proc}/{pid}/fd/{descriptor}")
                if path.startswith("pipe:"):
                    with open(f"{proc}/{pid}/fdinfo/{descriptor}", "rb") as info:
                        flags = next(line for line in text(info.read()).splitlines() if line.startswith("flags:"))
                    found.setdefault(path, []).append((pid, int(flags.split()[1], 8) & os.O_ACCMODE == os.O_RDONLY))
            except (OSError, ValueError, StopIteration):
                continue
    return found
