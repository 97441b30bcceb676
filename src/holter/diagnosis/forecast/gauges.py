"""What can run out, read off one sample: how much is used, where the wall is, and the words for both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from holter.facts.group_memory import kept
from holter.record.events.schema import Line
from holter.record.events.timeline import (
    Cgroup,
    DeviceMemory,
    Disk,
    FileSystem,
    MachineMemory,
    Nvidia,
    Processes,
    ResourceLimits,
    SharedMemory,
)
from holter.units import count, size


@dataclass(frozen=True)
class Gauge:
    """One thing that can run out, as it stands now."""

    what: str
    name: str
    used: float
    limit: float
    subject: str
    wall: str
    unit: Callable[[float], str] = size
    met: str = "is reached"
    own: float | None = None  # the run's own part, where others use it too


class Gauges:
    """Reads the gauges of each sample; what is read rarely is carried on."""

    def __init__(self) -> None:
        self._machine = MachineMemory()
        self._shm = 0.0
        self._nofile: float | None = None
        self._totals: dict[int, float] = {}
        self._fullest: dict[str, float] = {}

    def read(self, sample: dict[str, Any], lines: Iterable[Line]) -> Iterator[Gauge]:
        """Give every gauge that was read this time."""
        memory, tree = MachineMemory.of(sample), Processes.of(sample)
        self._machine = memory if sample.get("memory") else self._machine
        yield from self._shared(SharedMemory.of(sample))
        yield from self._container(Cgroup.of(sample))
        yield from self._ram(memory, tree)
        for row in Disk.of(sample).rows:
            yield from _disk(row)
        yield from self._files(tree, ResourceLimits.of(sample))
        yield from self._devices(Nvidia.of(sample), lines)

    def _container(self, group: Cgroup) -> Iterator[Gauge]:
        limit, usage = group.limit, group.usage
        if not limit or usage is None:
            return
        shared = self._shm if group.shmem is None else group.shmem
        used = kept(usage, group.file or 0.0, shared) + (group.swap_usage or 0.0)
        machine, allowed = self._machine.swap_total or 0.0, group.swap_limit
        swap = min(machine, allowed) if allowed is not None else machine
        wall = f"the container's limit of {size(limit)}" + (f" and its {size(swap)} of swap" if swap else "")
        yield Gauge("memory", "container", used, limit + swap, "memory", wall)

    def _ram(self, memory: MachineMemory, processes: Processes) -> Iterator[Gauge]:
        total, available = memory.total, memory.available
        if not total or available is None:
            return
        swap, free = memory.swap_total or 0.0, memory.swap_free or 0.0
        wall = f"the machine's memory of {size(total)}" + (f" and its {size(swap)} of swap" if swap else "")
        rss = processes.rss
        own = None if rss is None else rss + (processes.swap or 0.0)
        yield Gauge("memory", "machine", total - available + swap - free, total + swap, "memory", wall, own=own)

    def _shared(self, shm: SharedMemory) -> Iterator[Gauge]:
        total, free = shm.total, shm.free
        if total and free is not None:
            self._shm = total - free
            yield Gauge(
                "shm", "/dev/shm", total - free, total, "shared memory", f"/dev/shm of {size(total)}", met="is full"
            )

    def _files(self, processes: Processes, limits: ResourceLimits) -> Iterator[Gauge]:
        self._nofile = limits.nofile or self._nofile
        opened = float(max((row.fds or 0 for row in processes.rows), default=0))
        if self._nofile and opened:
            wall = f"the limit of {count(int(self._nofile))} open files"
            yield Gauge("open-files", "nofile", opened, self._nofile, "the number of open files", wall, _number)

    def _devices(self, nvidia: Nvidia, lines: Iterable[Line]) -> Iterator[Gauge]:
        for row in nvidia.rows:
            total = row.total
            if total:
                # What others hold on the device is no room for this run.
                others = max(0.0, (row.used or 0.0) - (row.tree or 0.0))
                self._totals[row.index or 0] = total - others
        for line in lines:
            if not isinstance(line, DeviceMemory):
                continue
            index, held = line.device, line.allocated
            if index is not None and held is not None and index in self._totals:
                total = self._totals[index]
                wall = f"the device's memory of {size(total)}"
                yield Gauge("device-memory", f"device {index}", held, total, "the device's memory in use", wall)


def _disk(row: FileSystem) -> Iterator[Gauge]:
    total, free = row.total, row.free
    mount = row.mount or row.path
    if total and free is not None and mount:
        wall = f"{mount} ({size(total)})"
        yield Gauge("disk", mount, total - free, total, f"what is written to {mount}", wall, met="is full")


def _number(n: float) -> str:
    return f"{n:.1f}" if n < 10 else count(round(n))
