"""The busiest threads of the run: who computes, and who merely waits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from holter.probes.probe import Reading, Tree
from holter.probes.procfs_linux import TICKS, parse_stat, read_short, stat_of

BUSIEST = 12
CALM = 5.0
REST = 500  # times its own cost, so that a tree of thousands of threads is read more rarely
IDLE = 0.005  # share of a core below which a process's threads are not worth a look


class Threads:
    """CPU time per thread over the interval since the last reading, from /proc/<pid>/task."""

    name = "threads"
    urgent = False

    def __init__(
        self,
        proc: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
        cost_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.every = CALM
        self._proc = proc
        self._clock = clock
        self._cost_clock = cost_clock
        self._read_at: float | None = None
        self._processes: dict[tuple[int, int], int] = {}
        self._threads: dict[int, dict[tuple[int, int], int]] = {}

    def read(self, tree: Tree) -> Reading:
        began = self._cost_clock()
        now = self._clock()
        wall = None if self._read_at is None else now - self._read_at
        self._read_at = now
        busy: list[tuple[float, int, int, str]] = []
        processes: dict[tuple[int, int], int] = {}
        threads: dict[int, dict[tuple[int, int], int]] = {}
        for pid in tree.pids:
            process = stat_of(pid, self._proc)
            if process is None:
                continue
            key = (pid, process.start)
            before = self._processes.get(key)
            if before is not None and wall and (process.ticks - before) / TICKS < IDLE * wall:
                # Carries the old counts on, so that slow work adds up until it is worth a look.
                processes[key] = before
                threads[pid] = self._threads.get(pid, {})
                continue
            processes[key] = process.ticks
            threads[pid] = self._of(pid, self._threads.get(pid, {}), before is not None, wall, busy)
        self._processes = processes
        self._threads = threads
        self.every = max(CALM, REST * (self._cost_clock() - began))
        if not wall:
            return {}
        busy.sort(reverse=True)
        rows: list[dict[str, Any]] = [
            {"pid": pid, "tid": tid, "name": name, "cpu": round(cpu, 4)} for cpu, pid, tid, name in busy[:BUSIEST]
        ]
        return {"list": rows, "wall": wall}

    def _of(
        self,
        pid: int,
        before: dict[tuple[int, int], int],
        process_is_known: bool,
        wall: float | None,
        busy: list[tuple[float, int, int, str]],
    ) -> dict[tuple[int, int], int]:
        """Reads one process's threads, and adds those that ran to `busy`."""
        counts: dict[tuple[int, int], int] = {}
        try:
            tids = os.listdir(f"{self._proc}/{pid}/task")
        except OSError:
            return counts
        for tid in tids:
            try:
                stat = parse_stat(read_short(f"{self._proc}/{pid}/task/{tid}/stat", 2048))
            except (OSError, ValueError, IndexError):
                continue
            key = (stat.pid, stat.start)
            counts[key] = stat.ticks
            # A thread that is new in a known process has spent all its time since the last reading; one of
            # a process first seen now may have spent it before.
            since = before.get(key, 0 if process_is_known else stat.ticks)
            if wall and stat.ticks > since:
                busy.append(((stat.ticks - since) / TICKS / wall, pid, stat.pid, stat.name))
        return counts


PROBES = [Threads]
