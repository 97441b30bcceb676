"""Memory of the run with shared pages counted once: the proportional set size."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from holter.errors import NoData
from holter.probes.probe import Reading, Tree
from holter.probes.procfs_linux import PAGE, read_short, stat_of

TOO_LARGE_BYTES = 16 * 10**9
FIRST = 0.9  # seconds: a short run is measured, too, and its workers are forked in the beginning
RARER = 1.2
CALM_S = 60.0
REST = 1000  # times its own cost


def parse_rollup(raw: bytes) -> dict[str, int]:
    """`pss`, `rss` and `file` in bytes from the text of smaps_rollup; empty when the process has no memory left."""
    sizes: dict[bytes, int] = {}
    for line in raw.splitlines()[1:]:  # the first is a range of addresses
        name, _, value = line.partition(b":")
        try:
            sizes[name] = int(value.split()[0]) * 1024
        except (ValueError, IndexError):
            continue
    if b"Pss" not in sizes:
        return {}
    return {"pss": sizes[b"Pss"], "rss": sizes.get(b"Rss", 0), "file": sizes.get(b"Pss_File", 0)}


class Proportional:
    """PSS from smaps_rollup, rarely.

    The kernel walks the process's page tables for it with the lock held that the process needs to map memory,
    so the reading makes the run wait: large processes are left out, and after each reading `every` is at
    least a thousand times what the reading took. At first it reads more often: how much forked workers share is not
    known before.
    """

    name = "proportional"
    urgent = False

    def __init__(self, proc: str = "/proc", clock: Callable[[], float] = time.thread_time) -> None:
        self.every = self._calm = FIRST
        self._proc = proc
        self._clock = clock

    def read(self, tree: Tree) -> Reading:
        began = self._clock()
        rows: list[dict[str, int]] = []
        file = 0
        because = ""  # why one could not be measured
        for pid in tree.pids:
            stat = stat_of(pid, self._proc)
            if stat is None or stat.state in "ZX":
                continue
            if stat.rss * PAGE >= TOO_LARGE_BYTES:
                because = f"process {pid} is too large to be measured without making it wait"
                continue
            try:
                sizes = parse_rollup(read_short(f"{self._proc}/{pid}/smaps_rollup"))
            except (FileNotFoundError, ProcessLookupError) as error:
                if stat_of(pid, self._proc) is not None:
                    because = f"{error.strerror}: smaps_rollup needs a kernel >= 4.14"
                continue
            except OSError as error:
                because = f"smaps_rollup of process {pid} could not be read: {error.strerror}"
                continue
            if sizes:
                file += sizes.pop("file")
                rows.append({"pid": pid, **sizes})
        self._calm = min(CALM_S, self._calm * RARER)
        self.every = max(self._calm, REST * (self._clock() - began))
        if not rows:
            if because:
                raise NoData(because)
            return {}
        reading: dict[str, Any] = {"list": rows}
        if not because:  # a sum over some of the processes would read as the run's memory and be far below it
            reading.update({name: sum(row[name] for row in rows) for name in ("pss", "rss")}, file=file)
        return reading


PROBES = [Proportional]
