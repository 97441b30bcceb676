"""How much memory a training may take on this machine: by its control groups and by the RAM."""

from __future__ import annotations

from ..facts import host_memory


def memory_budget() -> tuple[int, str] | None:
    """Bytes, and what sets them."""
    found = [(limit, "the container's limit") for _, limit in host_memory.groups()]
    found += [(free, "the RAM that is free") for free in host_memory.available()]
    return min(found) if found else None
