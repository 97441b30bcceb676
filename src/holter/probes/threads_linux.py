"""The busiest threads of the run: who computes, and who merely waits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from holter.probes.probe import Reading, Tree
from holter.probes.procfs_linux import TICKS, parse_stat, read_short, stat_of

BUSIEST = 12
CALM_S = 5.0
REST = 500  # times its own cost, so that a tree of thousands of threads is read more rarely
IDLE = 0.005  # share of a core below which a process's threads are not worth a look
WANTS = 0.05  # share of a core that a thread wanted, had or not, to be counted as one that computes


class _Row(NamedTuple):
    cpu: float
    pid: int
    tid: int
    name: str
    wait: float | None


class Threads:
    """CPU time per thread over the interval since the last reading, from /proc/<pid>/task.

    `cpu` is what a thread had of a core, `wait` for how long it was ready to run and had none: the kernel's run delay.
    """

    name = "threads"
    urgent = False

    def __init__(
        self,
        proc: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
        cost_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.every = CALM_S
        self._proc = proc
        self._clock = clock
        self._cost_clock = cost_clock
        self._read_at: float | None = None
        self._processes: dict[tuple[int, int], int] = {}
        self._threads: dict[int, dict[tuple[int, int], tuple[int, int | None]]] = {}

    def read(self, tree: Tree) -> Reading:
        began = self._cost_clock()
        now = self._clock()
        wall = None if self._read_at is None else now - self._read_at
        self._read_at = now
        busy: list[_Row] = []
        processes: dict[tuple[int, int], int] = {}
        threads: dict[int, dict[tuple[int, int], tuple[int, int | None]]] = {}
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
        self.every = max(CALM_S, REST * (self._cost_clock() - began))
        if not wall:
            return {}
        busy.sort(reverse=True)
        rows: list[dict[str, Any]] = [
            {"pid": row.pid, "tid": row.tid, "name": row.name, "cpu": round(row.cpu, 4)} for row in busy[:BUSIEST]
        ]
        reading: dict[str, Any] = {"list": rows, "wall": wall, "cpu": round(sum(row.cpu for row in busy), 4)}
        waits = [row.wait for row in busy if row.wait is not None]
        if waits:
            for shown, row in zip(rows, busy, strict=False):
                if row.wait is not None:
                    shown["wait"] = round(row.wait, 4)
            reading["wait"] = round(sum(waits), 4)
            reading["wanting"] = sum(row.cpu + (row.wait or 0.0) >= WANTS for row in busy)
        return reading

    def _of(
        self,
        pid: int,
        before: dict[tuple[int, int], tuple[int, int | None]],
        process_is_known: bool,
        wall: float | None,
        busy: list[_Row],
    ) -> dict[tuple[int, int], tuple[int, int | None]]:
        """Reads one process's threads, and adds those that ran to `busy`."""
        counts: dict[tuple[int, int], tuple[int, int | None]] = {}
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
            delay = self._delay(f"{self._proc}/{pid}/task/{tid}/schedstat")
            counts[key] = (stat.ticks, delay)
            # A thread that is new in a known process has spent all its time since the last reading; one of
            # a process first seen now may have spent it before.
            ran, waited = before.get(key, (0, 0) if process_is_known else (stat.ticks, delay))
            if wall and stat.ticks > ran:
                known = delay is not None and waited is not None
                wait = max(0, (delay or 0) - (waited or 0)) / 1e9 / wall if known else None
                busy.append(_Row((stat.ticks - ran) / TICKS / wall, pid, stat.pid, stat.name, wait))
        return counts

    def _delay(self, path: str) -> int | None:
        """Nanoseconds that a thread was ready and not running; None where the kernel does not count them."""
        try:
            return int(read_short(path, 128).split()[1])
        except (OSError, ValueError, IndexError):
            return None


PROBES = [Threads]
