"""Which processes are the run, on macOS: the same names as on Linux, by way of psutil."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import psutil


def descendants(root_pid: int) -> list[int]:
    """The process and all its descendants at this moment; empty when it is gone."""
    try:
        root = psutil.Process(root_pid)
        return [root_pid, *(child.pid for child in root.children(recursive=True))]
    except psutil.Error:
        return []


def _started(pid: int) -> float | None:
    try:
        return psutil.Process(pid).create_time()
    except (psutil.Error, OSError):
        return None


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


class TreeFinder:
    """Follows the run's processes from reading to reading, and keeps those whose parent died.

    Whoever was seen once stays while a process of that pid and start time lives; one that lost its parent
    before it was seen is found by the command's process group, when the command leads it.
    """

    def __init__(self, root: int, clock: Callable[[], float] = time.monotonic, full_scan_every: float = 5.0) -> None:
        self.root = root
        self._clock = clock
        self._full_scan_every = full_scan_every
        self._next_full_scan = float("-inf")
        self._members: dict[int, float] = {}
        self._leads = _group(root) == root

    @property
    def starts(self) -> dict[int, float]:
        """When each process of the last look began: tells it from a later one with the same number."""
        return self._members

    def find(self) -> list[int]:
        """The pids of the run that are there now, the command's own first."""
        living = {pid: at for pid, at in self._members.items() if _started(pid) == at}
        for pid in [self.root, *living]:
            if pid == self.root and self.root in self._members and self.root not in living:
                continue  # the number was given to someone else
            for found in descendants(pid):
                started = _started(found)
                if started is not None:
                    living.setdefault(found, started)
        now = self._clock()
        if self._leads and now >= self._next_full_scan:
            self._next_full_scan = now + self._full_scan_every
            for pid in psutil.pids():
                if pid not in living and _group(pid) == self.root and (at := _started(pid)) is not None:
                    living[pid] = at
        # The root's own start time is kept for good: a later process of that number is a stranger.
        root_at = self._members.get(self.root)
        self._members = dict(living)
        if self.root not in living and root_at is not None:
            self._members[self.root] = root_at
        return list(living)
