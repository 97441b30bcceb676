"""Other programs on the machine that hold much memory: who they are, and since when."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from holter.probes.owner import owner_of
from holter.probes.probe import Reading, Tree
from holter.probes.procfs_linux import PAGE, TICKS, Stat, pids_in, read_whole, stat_of

CALM_S = 30.0
REST = 1000  # times its own cost
LARGEST = 8
LEAST = 100 << 20  # bytes: smaller ones are no neighbours to speak of


class Neighbours:
    """The largest processes that are none of the run's, by what each has in memory."""

    name = "neighbours"
    urgent = False

    def __init__(self, proc: str = "/proc", clock: Callable[[], float] = time.perf_counter) -> None:
        self.every = CALM_S
        self._proc = proc
        self._clock = clock
        self._booted = _booted(proc)

    def read(self, tree: Tree) -> Reading:
        began = self._clock()
        ours = {*tree.pids, os.getpid()}
        found = [stat for pid in pids_in(self._proc) if pid not in ours and (stat := stat_of(pid, self._proc))]
        large = sorted((stat for stat in found if stat.rss * PAGE >= LEAST), key=lambda stat: -stat.rss)
        rows = [self._row(stat) for stat in large[:LARGEST]]
        self.every = max(CALM_S, REST * (self._clock() - began))
        return {"list": rows} if rows else {}

    def _row(self, stat: Stat) -> dict[str, Any]:
        row: dict[str, Any] = {"pid": stat.pid, "rss": stat.rss * PAGE, **owner_of(stat.pid, self._proc)}
        if self._booted is not None:
            row["started"] = self._booted + stat.start / TICKS
        return row


def _booted(proc: str) -> int | None:
    """When the machine was started, in wall-clock seconds: asked once, for the page has a line for each core."""
    try:
        return next(int(line.split()[1]) for line in read_whole(f"{proc}/stat").splitlines() if line[:5] == b"btime")
    except (OSError, ValueError, StopIteration):
        return None


PROBES = [Neighbours]
