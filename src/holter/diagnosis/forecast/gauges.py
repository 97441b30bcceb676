"""What can run out, read off one sample: how much is used, where the wall is, and the words for both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from holter.diagnosis.core.fields import number, part, rows, text, whole
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
        self._machine: dict[str, Any] = {}
        self._shm = 0.0
        self._nofile: float | None = None
        self._totals: dict[int, float] = {}
        self._fullest: dict[str, float] = {}

    def read(self, sample: dict[str, Any], lines: Iterable[dict[str, Any]]) -> Iterator[Gauge]:
        """Give every gauge that was read this time."""
        self._machine = part(sample, "memory") or self._machine
        yield from self._shared(part(sample, "shm"))
        yield from self._container(part(sample, "cgroup"))
        yield from self._ram(part(sample, "memory"), part(sample, "processes"))
        for row in rows(part(sample, "disk"), "list"):
            yield from _disk(row)
        yield from self._files(part(sample, "processes"), part(sample, "rlimits"))
        yield from self._devices(part(sample, "nvidia"), lines)

    def _container(self, group: dict[str, Any]) -> Iterator[Gauge]:
        limit, usage = number(group, "limit"), number(group, "usage")
        if not limit or usage is None:
            return
        cached, shared = number(group, "file") or 0.0, number(group, "shmem")
        kept = min(cached, self._shm if shared is None else shared)
        used = max(0.0, usage - cached + kept) + (number(group, "swap_usage") or 0.0)
        machine, allowed = number(self._machine, "swap_total") or 0.0, number(group, "swap_limit")
        swap = min(machine, allowed) if allowed is not None else machine
        wall = f"the container's limit of {size(limit)}" + (f" and its {size(swap)} of swap" if swap else "")
        yield Gauge("memory", "container", used, limit + swap, "memory", wall)

    def _ram(self, memory: dict[str, Any], processes: dict[str, Any]) -> Iterator[Gauge]:
        total, available = number(memory, "total"), number(memory, "available")
        if not total or available is None:
            return
        swap, free = number(memory, "swap_total") or 0.0, number(memory, "swap_free") or 0.0
        wall = f"the machine's memory of {size(total)}" + (f" and its {size(swap)} of swap" if swap else "")
        rss = number(processes, "rss")
        own = None if rss is None else rss + (number(processes, "swap") or 0.0)
        yield Gauge("memory", "machine", total - available + swap - free, total + swap, "memory", wall, own=own)

    def _shared(self, shm: dict[str, Any]) -> Iterator[Gauge]:
        total, free = number(shm, "total"), number(shm, "free")
        if total and free is not None:
            self._shm = total - free
            yield Gauge(
                "shm", "/dev/shm", total - free, total, "shared memory", f"/dev/shm of {size(total)}", met="is full"
            )

    def _files(self, processes: dict[str, Any], limits: dict[str, Any]) -> Iterator[Gauge]:
        self._nofile = number(limits, "nofile") or self._nofile
        opened = max((number(row, "fds") or 0.0 for row in rows(processes, "list")), default=0.0)
        if self._nofile and opened:
            wall = f"the limit of {count(int(self._nofile))} open files"
            yield Gauge("open-files", "nofile", opened, self._nofile, "the number of open files", wall, _number)

    def _devices(self, nvidia: dict[str, Any], lines: Iterable[dict[str, Any]]) -> Iterator[Gauge]:
        for row in rows(nvidia, "list"):
            total = number(row, "total")
            if total:
                # What others hold on the device is no room for this run.
                others = max(0.0, (number(row, "used") or 0.0) - (number(row, "tree") or 0.0))
                self._totals[whole(row, "index") or 0] = total - others
        for line in lines:
            index, held = whole(line, "device"), number(line, "allocated")
            if line.get("k") == "device" and index is not None and held is not None and index in self._totals:
                total = self._totals[index]
                wall = f"the device's memory of {size(total)}"
                yield Gauge("device-memory", f"device {index}", held, total, "the device's memory in use", wall)


def _disk(row: dict[str, Any]) -> Iterator[Gauge]:
    total, free = number(row, "total"), number(row, "free")
    mount = text(row, "mount") or text(row, "path")
    if total and free is not None and mount:
        wall = f"{mount} ({size(total)})"
        yield Gauge("disk", mount, total - free, total, f"what is written to {mount}", wall, met="is full")


def _number(n: float) -> str:
    return f"{n:.1f}" if n < 10 else count(round(n))
