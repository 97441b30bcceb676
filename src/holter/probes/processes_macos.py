"""The processes of the run on macOS: what each holds in memory, and what all of them have used so far."""

from __future__ import annotations

from typing import Any

import psutil

from holter.probes.probe import Reading, Tree

LARGEST = 64
_STATES = {
    psutil.STATUS_RUNNING: "R",
    psutil.STATUS_SLEEPING: "S",
    psutil.STATUS_DISK_SLEEP: "D",
    psutil.STATUS_STOPPED: "T",
    psutil.STATUS_TRACING_STOP: "t",
    psutil.STATUS_ZOMBIE: "Z",
    psutil.STATUS_IDLE: "I",
}


class Processes:
    """Memory, CPU, faults and descriptors of the whole tree, as far as psutil has them without root."""

    name = "processes"
    every = 1.0
    urgent = True

    def __init__(self) -> None:
        self._known: dict[int, psutil.Process] = {}
        self._last: dict[int, dict[str, Any]] = {}
        self._gone: dict[str, float] = {}

    def read(self, tree: Tree) -> Reading:
        rows: dict[int, dict[str, Any]] = {}
        for pid in tree.pids:
            row = self._row(pid)
            if row is not None:
                rows[pid] = row
        for pid, row in self._last.items():
            if pid not in rows or rows[pid]["started"] != row["started"]:
                for name in ("cpu_s", "majflt"):
                    if name in row:
                        self._gone[name] = self._gone.get(name, 0) + row[name]
        self._last = rows
        if not rows:
            return {}
        total: dict[str, Any] = {"count": len(rows)}
        for name in ("rss", "cpu_s", "majflt", "threads", "fds"):
            values = [row[name] for row in rows.values() if name in row]
            if values:
                total[name] = sum(values) + self._gone.get(name, 0)
        total["list"] = [
            {name: value for name, value in row.items() if name != "started"}
            for row in sorted(rows.values(), key=lambda row: row.get("rss", 0), reverse=True)[:LARGEST]
        ]
        return total

    def _row(self, pid: int) -> dict[str, Any] | None:
        try:
            process = self._known.get(pid)
            if process is None or not process.is_running():
                process = self._known[pid] = psutil.Process(pid)
            row: dict[str, Any] = {"pid": pid, "started": process.create_time()}
        except psutil.Error:
            self._known.pop(pid, None)
            return None
        with process.oneshot():
            # Each by itself: macOS denies some figures of a process and grants others.
            for fill in (self._who, self._memory, self._time, self._faults, self._descriptors):
                try:
                    fill(process, row)
                except (psutil.Error, OSError, AttributeError):
                    continue
        return row

    @staticmethod
    def _who(process: psutil.Process, row: dict[str, Any]) -> None:
        row["ppid"] = process.ppid()
        row["name"] = process.name()
        row["state"] = _STATES.get(process.status(), "?")
        row["threads"] = process.num_threads()

    @staticmethod
    def _memory(process: psutil.Process, row: dict[str, Any]) -> None:
        row["rss"] = process.memory_info().rss

    @staticmethod
    def _time(process: psutil.Process, row: dict[str, Any]) -> None:
        times = process.cpu_times()
        row["cpu_s"] = times.user + times.system

    @staticmethod
    def _faults(process: psutil.Process, row: dict[str, Any]) -> None:
        memory: Any = process.memory_info()  # pageins are what macOS calls major faults
        row["majflt"] = memory.pageins

    @staticmethod
    def _descriptors(process: psutil.Process, row: dict[str, Any]) -> None:
        row["fds"] = process.num_fds()


PROBES = [Processes]
