"""The run's memory over time against the nearest limit, on the host and on the device."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace

from holter.diagnosis.core.evidence import latest
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.rule import P, RecordLike
from holter.diagnosis.memory.memory_looks import memory_looks
from holter.facts.group_memory import kept
from holter.record.events.agent import AgentHello
from holter.record.events.recorder import Exited
from holter.record.events.timeline import (
    Apple,
    Cgroup,
    DeviceMemory,
    MachineMemory,
    Nvidia,
    Processes,
    Proportional,
    ResourceLimits,
    SharedMemory,
)
from holter.units import share, size

Points = tuple[tuple[float, float], ...]

LIMIT_WORDS = {
    "cgroup": "the container's limit",
    "cgroup-swap": "the container's limit with its swap",
    "ram": "the machine's memory",
    "ram-swap": "the machine's memory with its swap",
    "rlimit": "the process's own limit (ulimit)",
    "device": "the device's memory",
    "own": "the limit that the process set itself",
}


@dataclass(frozen=True)
class MemoryCurve:
    """Memory over monotonic time, and the nearest limit that stands against it."""

    points: Points
    limit: float | None = None
    kind: str = ""

    @property
    def last(self) -> float:
        return self.points[-1][1]

    @property
    def peak(self) -> float:
        return max(value for _, value in self.points)

    @property
    def late(self) -> float:
        """Give the highest reading of the last seconds: the very last may be of a tree that is half gone."""
        end = self.points[-1][0]
        return max(value for m, value in self.points[-100:] if m >= end - 5)

    @property
    def nearness(self) -> float:
        """Give the share of the limit that was reached in the last seconds."""
        return self.late / self.limit if self.limit else 0.0

    def by(self, m: float) -> float | None:
        """Give the last reading up to a moment; None before the first."""
        return next((value for at, value in reversed(self.points) if at <= m), None)

    def until(self, m: float) -> MemoryCurve:
        """Give the curve up to a kill: afterwards the tree goes away, and its memory with it."""
        kept = [point for point in self.points if point[0] <= m]
        late = [value for at, value in kept if at >= m - 5]
        while kept and late and kept[-1][1] < 0.98 * max(late):
            kept.pop()
        return replace(self, points=tuple(kept)) if kept else self

    @property
    def limit_words(self) -> str:
        return LIMIT_WORDS.get(self.kind, "the limit")

    @property
    def standing(self) -> str:
        """Say the last seconds' memory against the limit."""
        if not self.limit:
            return size(self.late)
        return f"{size(self.late)} of {size(self.limit)}, {share(self.nearness)} of {self.limit_words}"

    @property
    def against(self) -> str:
        """Say the same as part of a sentence."""
        return f"memory was at {self.standing}"


@once
def memory_curve(record: RecordLike) -> MemoryCurve | None:
    """Give the run's memory against the nearest of the limits: cgroup, rlimit, RAM."""
    limits = []
    group = _last(record, Cgroup, lambda reading: reading.limit)
    if group:
        limits.append((group, "cgroup"))
    ram = _last(record, MachineMemory, lambda reading: reading.total) or record.facts.memory_total
    if ram:
        limits.append((ram, "ram"))
    space = _last(record, ResourceLimits, lambda reading: reading.address_space)
    for soft in (space, _last(record, ResourceLimits, lambda reading: reading.data)):
        if soft:
            limits.append((soft, "rlimit"))
    limit, kind = min(limits, default=(None, ""))
    points = _group_points(record) if kind == "cgroup" else ()
    points = points or _footprint_points(record) or _tree_points(record)
    if kind == "cgroup":
        # Against the machine's memory a look counts what every program holds, and not the run's own.
        points = _with_looks(record, points, limit)
    swap = _swap_behind(record, kind)
    if limit and swap:
        # With swap behind it the resident part stands still at the limit, and what is swapped out grows on.
        limit, kind = limit + swap, f"{kind}-swap"
    return MemoryCurve(points, limit, kind) if points else None


@once
def device_curve(record: RecordLike) -> MemoryCurve | None:
    """Give the fullest GPU's memory against its size, by the driver, else by the framework's figures."""
    used: dict[int, list[tuple[float, float]]] = {}
    totals: dict[int, float] = {}
    for m, reading in record.readings(Nvidia):
        for row in reading.rows:
            index, bytes_used, total = row.index or 0, row.used, row.total
            if bytes_used is not None and total and (row.tree or 0) > 0:
                used.setdefault(index, []).append((m, bytes_used))
                totals[index] = total
    if not used:
        for line in record.of(DeviceMemory):
            held = line.driver or line.reserved or line.allocated
            if held is not None:
                used.setdefault(0, []).append((line.m, held))
    return _of_the_fullest(used, totals)


@once
def own_device_curve(record: RecordLike) -> MemoryCurve | None:
    """Give what this run alone held on its fullest GPU: a limit of its own does not count what others hold there."""
    own: dict[int, list[tuple[float, float]]] = {}
    for m, reading in record.readings(Nvidia):
        for row in reading.rows:
            if row.tree:
                own.setdefault(row.index or 0, []).append((m, row.tree))
    return _of_the_fullest(own, {})


@once
def allocated_curve(record: RecordLike) -> MemoryCurve | None:
    """Give what the framework itself holds on the fullest device: what it reserves for reuse is no growth."""
    held: dict[int, list[tuple[float, float]]] = {}
    for line in record.of(DeviceMemory):
        allocated = line.allocated
        if allocated is not None:
            held.setdefault(line.device or 0, []).append((line.m, allocated))
    last = [row for _, reading in record.readings(Nvidia)[-1:] for row in reading.rows]
    return _of_the_fullest(held, {row.index or 0: row.total for row in last if row.total})


def _of_the_fullest(used: dict[int, list[tuple[float, float]]], totals: dict[int, float]) -> MemoryCurve | None:
    """Give the curve of the device that holds the most at the end, against its size where that is known."""
    fullest = max(used, key=lambda index: used[index][-1][1], default=None)
    if fullest is None:
        return None
    return MemoryCurve(tuple(sorted(used[fullest])), totals.get(fullest), "device")


def process_curve(record: RecordLike, pid: int | None, whole_run: MemoryCurve | None) -> MemoryCurve | None:
    """Give one process's resident memory, against the limit that the whole run stands under."""
    points = tuple(
        (m, held + (row.swap or 0.0))
        for m, reading in record.readings(Processes)
        for row in reading.rows
        if row.pid == pid and (held := row.rss)
    )
    limit, kind = (whole_run.limit, whole_run.kind) if whole_run is not None else (None, "")
    return MemoryCurve(points, limit, kind) if points else None


def _with_looks(record: RecordLike, points: Points, limit: float | None) -> Points:
    """Add what was seen between two samples, where it was measured against the same limit."""
    # A look adds up what a few processes grew by: no more than the limit was ever there.
    looks = [(look.m, min(look.used, look.limit)) for look in memory_looks(record) if look.limit == limit]
    return tuple(sorted((*points, *looks))) if points and looks else points


def _last(record: RecordLike, probe: type[P], figure: Callable[[P], float | None]) -> float | None:
    return figure(latest(record, probe, lambda reading: (figure(reading) or 0.0) > 0))


def _swap_behind(record: RecordLike, kind: str) -> float:
    """Give the swap that the run can go on into once its limit is reached."""
    machine = _last(record, MachineMemory, lambda reading: reading.swap_total) or 0.0
    if kind == "ram":
        return machine
    if kind != "cgroup" or not machine:
        return 0.0
    known = [reading.swap_limit for _, reading in record.readings(Cgroup)[-3:]]
    allowed = [value for value in known if value is not None]
    return min(machine, allowed[-1]) if allowed else machine


def _group_points(record: RecordLike) -> Points:
    held_by_shm = {
        m: max(0.0, (reading.total or 0) - (reading.free or 0)) for m, reading in record.readings(SharedMemory)
    }
    found, path, shm = [], None, 0.0
    for m, reading in record.readings(Cgroup):
        usage, shm = reading.usage, held_by_shm.get(m, shm)
        if usage is None:
            continue
        if path is not None and reading.path != path:
            found.clear()
        path = reading.path
        shared = shm if reading.shmem is None else reading.shmem
        found.append((m, kept(usage, reading.file or 0.0, shared) + (reading.swap_usage or 0.0)))
    return tuple(found)


def _tree_points(record: RecordLike) -> Points:
    # Resident sizes count shared pages once per process, and pages of files, which no limit need have room for.
    # The rare proportional reading says how many bytes that is.
    over = _Overstated(record)
    found = []
    for m, reading in record.readings(Processes):
        if reading.rss is not None and reading.rss > 0:
            found.append((m, max(0.0, reading.rss - over.surplus(m, reading)) + (reading.swap or 0.0)))
    return tuple(found)


class _Overstated:
    """By how much resident sizes overstate what a tree holds, by when that was measured and of how many processes.

    Asked for every sample of a week: all is found by halving, nothing by walking.
    """

    def __init__(self, record: RecordLike) -> None:
        sizes = record.readings(Processes)
        times = [m for m, _ in sizes]
        self.all: list[tuple[float, int | None, float, float]] = []
        self.of: dict[int | None, list[tuple[float, float]]] = {}
        for m, reading in record.readings(Proportional):
            if reading.pss and sizes:
                beside = sizes[_nearest(times, m)][1]
                again = max(0.0, (reading.rss or beside.rss or 0.0) - reading.pss)
                file = reading.file or 0.0
                self.all.append((m, beside.count, again, file))
                self.of.setdefault(beside.count, []).append((m, again + file - _mapped(beside)))
        self.times = [one[0] for one in self.all]
        self.inherited = {hello.pid: hello.inherited for hello in record.of(AgentHello) if hello.inherited}

    def surplus(self, m: float, reading: Processes) -> float:
        """As it was last measured with as many processes; of one alone the files that it mapped since are known.

        Where it never was (workers are being forked), each beyond the first shares as much as in the nearest reading;
        where that was of one process, as much as it had from its parent.
        """
        alike = self.of.get(reading.count)
        if alike:
            return alike[max(0, bisect_right(alike, (m, float("inf"))) - 1)][1] + _mapped(reading)
        if not self.all:
            return 0.0
        _, of, again, file = self.all[_nearest(self.times, m)]
        if of and of > 1:
            return file + again * ((reading.count or 1) - 1) / (of - 1)
        return file + sum(min(row.rss or 0.0, self.inherited.get(row.pid or 0, 0.0)) for row in reading.rows)


def _mapped(reading: Processes) -> float:
    """Give the bytes of files and shared memory that a process without children maps."""
    return sum(row.shared or 0.0 for row in reading.rows) if reading.count == 1 else 0.0


def _nearest(times: list[float], m: float) -> int:
    """Give the place of the nearest of some times in order; of two as near the earlier one."""
    at = bisect_left(times, m)
    if at == 0 or (at < len(times) and times[at] - m < m - times[at - 1]):
        return at
    return at - 1


@once
def unseen_peak(record: RecordLike) -> float:
    """Give by how much one process was larger between two readings than at any: the kernel keeps its highest."""
    seen: dict[int, float] = {}
    highest: dict[int, float] = {}
    for _, reading in record.readings(Processes):
        for row in reading.rows:
            if row.pid is not None:
                seen[row.pid] = max(seen.get(row.pid, 0.0), row.rss or 0.0)
                highest[row.pid] = max(highest.get(row.pid, 0.0), row.peak or 0.0)
    # Of the largest process that has ended the kernel tells its highest once more, at the very end.
    last = max((ended.maxrss or 0.0 for ended in record.of(Exited)), default=0.0) - max(seen.values(), default=0.0)
    return max(last, *(highest[pid] - seen[pid] for pid in seen)) if seen else 0.0


def _footprint_points(record: RecordLike) -> Points:
    return tuple((m, held) for m, reading in record.readings(Apple) if (held := reading.footprint))
