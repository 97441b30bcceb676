"""Which processes are the run: the command's own and all that it started, even if orphaned."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from holter.probes.procfs_linux import Stat, pids_in, read_short, read_whole, stat_of


def _lists_children(pid: int, proc: str) -> bool:
    """Whether this kernel keeps lists of children (CONFIG_PROC_CHILDREN)."""
    return os.path.exists(f"{proc}/{pid}/task/{pid}/children")


def _children_of(pid: int, proc: str) -> list[int]:
    """The children of one process; the kernel lists them under the thread that forked them."""
    found: list[int] = []
    try:
        threads = os.listdir(f"{proc}/{pid}/task")
    except OSError:
        return found
    for tid in threads:
        try:
            found.extend(int(child) for child in read_whole(f"{proc}/{pid}/task/{tid}/children").split())
        except (OSError, ValueError):
            continue
    return found


def descendants(root_pid: int, proc: str = "/proc") -> list[int]:
    """The process and all its descendants at this moment, parents first; empty when it is gone."""
    if stat_of(root_pid, proc) is None:
        return []
    found = [root_pid]
    if _lists_children(root_pid, proc):
        for pid in found:  # grows while it is walked
            found.extend(child for child in _children_of(pid, proc) if child not in found)
        return found
    children: dict[int, list[int]] = {}
    for pid in pids_in(proc):
        if (stat := stat_of(pid, proc)) is not None:
            children.setdefault(stat.ppid, []).append(pid)
    for pid in found:
        found.extend(child for child in children.get(pid, ()) if child not in found)
    return found


class TreeFinder:
    """Follows the run's processes from reading to reading.

    A child whose parent died belongs to init from then on, so descent alone loses it. Whoever was seen in the
    tree once stays in it while a process of that pid and that start time lives: the start time tells a pid
    that was given to someone else. One that lost its parent before it was ever seen is found by its process
    group or session, as long as a member leads or led it.
    """

    def __init__(
        self,
        root: int,
        proc: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
        full_scan_every: float = 5.0,
    ) -> None:
        self.root = root
        self._proc = proc
        self._clock = clock
        self._full_scan_every = full_scan_every
        self._next_full_scan = float("-inf")
        self._members: dict[int, int] = {}
        self._outsiders: set[int] = set()
        self._groups: set[int] = set()
        self._population = 0
        self._newest = b""
        self._root_start: int | None = None
        self._root_pid_is_taken = False

    @property
    def starts(self) -> dict[int, int]:
        """When each process of the last look began: tells it from a later one with the same number."""
        return self._members

    def find(self) -> list[int]:
        """The pids of the run that are there now (zombies too), the command's own first."""
        living = self._still_living()
        now = self._clock()
        newest = self._newest_pid()
        candidates: dict[int, Stat] = {}
        if now >= self._next_full_scan:
            self._next_full_scan = now + self._full_scan_every
            self._outsiders.clear()
            candidates = self._unknown(living)
        elif newest and newest == self._newest:
            pass  # nobody on this machine has forked since the last look
        elif self._lists_are_cheaper(living):
            candidates = self._listed(living)
        else:
            candidates = self._unknown(living)
        self._newest = newest
        self._adopt(living, candidates)
        self._members = {pid: stat.start for pid, stat in living.items()}
        return list(self._members)

    def _newest_pid(self) -> bytes:
        """The number that was given out last, which a listing of all processes costs ten times more to tell."""
        try:
            return read_short(f"{self._proc}/loadavg", 128).split()[4]
        except (OSError, IndexError):
            return b""

    def _still_living(self) -> dict[int, Stat]:
        living = {}
        root = stat_of(self.root, self._proc)
        if root is not None:
            if self._root_start is None:
                self._root_start = root.start
            if root.start == self._root_start:
                living[self.root] = root
            else:
                self._root_pid_is_taken = True
        for pid, start in self._members.items():
            if pid != self.root and (stat := stat_of(pid, self._proc)) is not None and stat.start == start:
                living[pid] = stat
        return living

    def _lists_are_cheaper(self, living: dict[int, Stat]) -> bool:
        # One file per thread against one directory entry per process of the machine: a trainer with many
        # threads in a small container is found faster by looking who is new.
        threads = sum(stat.threads for stat in living.values())
        first = next(iter(living), None)
        return first is not None and threads < self._population and _lists_children(first, self._proc)

    def _listed(self, living: dict[int, Stat]) -> dict[int, Stat]:
        found: dict[int, Stat] = {}
        queue = list(living)
        for pid in queue:
            for child in _children_of(pid, self._proc):
                if child not in living and child not in found:
                    stat = stat_of(child, self._proc)
                    if stat is not None:
                        found[child] = stat
                        queue.append(child)
        return found

    def _unknown(self, living: dict[int, Stat]) -> dict[int, Stat]:
        """Processes that were not there at the last look: the only ones whose files are worth opening."""
        pids = pids_in(self._proc)
        self._population = len(pids)
        self._outsiders.intersection_update(pids)
        found = {}
        for pid in pids:
            if pid not in living and pid not in self._outsiders:
                stat = stat_of(pid, self._proc)
                if stat is not None:
                    found[pid] = stat
        return found

    def _adopt(self, living: dict[int, Stat], candidates: dict[int, Stat]) -> None:
        self._groups = self._led_by_members(living.values(), living)
        waiting = dict(candidates)
        if self._root_pid_is_taken:
            waiting.pop(self.root, None)
        grew = True
        while grew:
            grew = False
            for pid, stat in list(waiting.items()):
                if stat.ppid in living or stat.pgrp in self._groups or stat.session in self._groups:
                    living[pid] = waiting.pop(pid)
                    self._groups |= self._led_by_members([stat], living)
                    grew = True
        self._outsiders.update(waiting)

    def _led_by_members(self, stats: Iterable[Stat], living: dict[int, Stat]) -> set[int]:
        # The shell that started the command leads the command's session: only a group that a member leads or
        # led is the run's own. The kernel gives no new process the number of a group that still has members.
        led = set()
        for stat in stats:
            for group in (stat.pgrp, stat.session):
                if group in living or group in self._groups:
                    led.add(group)
        if self._root_start is not None and not self._root_pid_is_taken:
            led.add(self.root)
        return led
