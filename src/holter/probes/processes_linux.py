"""The processes of the run: what each holds in memory, and what all of them have used so far."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holter.probes.probe import Reading, Tree
from holter.probes.procfs_linux import PAGE, TICKS, Stat, read_short, stat_of

LARGEST = 64
DETAILS_EVERY = 4.5
DETAILS_OF_FEW = 1.8
FEW_PROCESSES = 8
_COUNTERS = ("majflt", "ctx_involuntary", "read_bytes", "write_bytes")
_STATUS = {
    b"VmHWM": ("peak", 1024),
    b"VmSwap": ("swap", 1024),
    b"nonvoluntary_ctxt_switches": ("ctx_involuntary", 1),
}


@dataclass
class _Seen:
    """What was last seen of one process."""

    stat: Stat
    details: dict[str, int] = field(default_factory=dict)
    detailed_at: float = float("-inf")

    def counter(self, name: str) -> int | None:
        return self.stat.majflt if name == "majflt" else self.details.get(name)


class Processes:
    """Memory, CPU, faults, I/O and descriptors of the whole tree, from /proc/<pid>.

    `rss` counts a page once for each process that maps it: `shared` says how much of it may be the same. The
    context switches are those of each process's main thread, which is what the kernel keeps per process.
    """

    name = "processes"
    every = 1.0
    urgent = True

    def __init__(self, proc: str = "/proc", clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._seen: dict[int, _Seen] = {}
        self._gone: dict[str, int] = {}
        self._gone_ticks = 0
        self._gone_system = 0
        self._reported: dict[str, int] = {}

    def read(self, tree: Tree) -> Reading:
        now = self._clock()
        seen: dict[int, _Seen] = {}
        shared: dict[int, int] = {}
        for pid in tree.pids:
            stat = stat_of(pid, self._proc)
            if stat is None:
                continue
            known = self._seen.get(pid)
            if known is not None and known.stat.start == stat.start:
                known.stat = stat
            else:
                if known is not None:
                    self._bury(known, tree)
                known = _Seen(stat)
            seen[pid] = known
            try:
                shared[pid] = int(read_short(f"{self._proc}/{pid}/statm", 128).split()[2]) * PAGE
            except (OSError, ValueError, IndexError):
                pass
            # Descriptors, swap and I/O cost more than all the rest and change slowly: they are carried on.
            if now - known.detailed_at >= (DETAILS_EVERY if len(tree.pids) > FEW_PROCESSES else DETAILS_OF_FEW):
                known.detailed_at = now
                known.details.update(self._details(pid))
        for pid, known in self._seen.items():
            if pid not in seen:
                self._bury(known, tree)
        self._seen = seen
        return self._reading(seen, shared) if seen else {}

    def _details(self, pid: int) -> dict[str, int]:
        found: dict[str, int] = {}
        try:
            for line in read_short(f"{self._proc}/{pid}/status").split(b"\n"):
                name, _, value = line.partition(b":")
                if name in _STATUS:
                    field_name, factor = _STATUS[name]
                    found[field_name] = int(value.split()[0]) * factor
        except (OSError, ValueError, IndexError):
            pass
        try:
            for line in read_short(f"{self._proc}/{pid}/io").split(b"\n"):
                name, _, value = line.partition(b": ")
                if name in (b"read_bytes", b"write_bytes"):
                    found[name.decode()] = int(value)
        except (OSError, ValueError):
            pass
        try:
            # Kernels from 6.2 on keep the number of descriptors as the folder's size; older ones say 0.
            folder = f"{self._proc}/{pid}/fd"
            size = os.stat(folder).st_size if self._proc == "/proc" else 0
            found["fds"] = size or len(os.listdir(folder))
        except OSError:
            pass
        return found

    def _bury(self, known: _Seen, tree: Tree) -> None:
        """Keeps what a process that is gone had counted."""
        self._gone_ticks += known.stat.ticks
        self._gone_system += known.stat.system
        for name in _COUNTERS:
            # The kernel adds a child's I/O to the parent that waited for it: kept here, it would count twice.
            if name in ("read_bytes", "write_bytes") and known.stat.ppid in tree.pids:
                continue
            value = known.counter(name)
            if value is not None:
                self._gone[name] = self._gone.get(name, 0) + value

    def _reading(self, seen: dict[int, _Seen], shared: dict[int, int]) -> dict[str, Any]:
        rows = [self._row(pid, known, shared.get(pid)) for pid, known in seen.items()]
        total: dict[str, Any] = {
            "rss": sum(row["rss"] for row in rows),
            "cpu_s": (self._gone_ticks + sum(known.stat.ticks for known in seen.values())) / TICKS,
            "sys_s": (self._gone_system + sum(known.stat.system for known in seen.values())) / TICKS,
            "threads": sum(row["threads"] for row in rows),
            "count": len(rows),
        }
        for name in ("swap", "fds"):
            values = [row[name] for row in rows if name in row]
            if values:
                total[name] = sum(values)
        for name in _COUNTERS:
            counts = [value for known in seen.values() if (value := known.counter(name)) is not None]
            if counts or name in self._gone:
                # A child's I/O reaches its parent's file with the parent's next reading: never step back.
                total[name] = max(sum(counts) + self._gone.get(name, 0), self._reported.get(name, 0))
                self._reported[name] = total[name]
        rows.sort(key=lambda row: row["rss"], reverse=True)
        total["list"] = rows[:LARGEST]
        return total

    def _row(self, pid: int, known: _Seen, shared: int | None) -> dict[str, Any]:
        stat = known.stat
        row: dict[str, Any] = {
            "pid": pid,
            "ppid": stat.ppid,
            "name": stat.name,
            "state": stat.state,
            "rss": stat.rss * PAGE,
            "cpu_s": stat.ticks / TICKS,
            "majflt": stat.majflt,
            "threads": stat.threads,
        }
        if shared is not None:
            row["shared"] = shared
        for name in ("swap", "fds", "peak"):
            if name in known.details:
                row[name] = known.details[name]
        return row


PROBES = [Processes]
