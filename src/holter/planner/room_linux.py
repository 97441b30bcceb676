"""How much memory a training may take on this machine: by its control groups and by the RAM."""

from __future__ import annotations

import os
from collections.abc import Iterator

_ROOTS = (("/sys/fs/cgroup/memory", "memory"), ("/sys/fs/cgroup", ""), ("/sys/fs/cgroup/unified", ""))


def room() -> tuple[int, str] | None:
    """Bytes, and what sets them."""
    found = [*_groups(), *_ram()]
    return min(found) if found else None


def _groups() -> Iterator[tuple[int, str]]:
    paths: dict[str, str] = {}
    for line in _lines("/proc/self/cgroup"):
        controllers, path = line.strip().split(":", 2)[1:]
        paths.update((name, path) for name in controllers.split(","))
    for root, controller in _ROOTS:
        below = paths.get(controller)
        while below is not None:
            folder = root + below.rstrip("/")
            for name in ("/memory.max", "/memory.limit_in_bytes"):
                text = "".join(_lines(folder + name)).strip()
                if text.isdigit() and int(text) < 1 << 60:
                    yield int(text), "the container's limit"
            below = os.path.dirname(below) if below not in ("/", "") else None


def _ram() -> Iterator[tuple[int, str]]:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable"):
            yield int(line.split()[1]) * 1024, "the RAM that is free"


def _lines(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.readlines()
    except OSError:
        return []
