"""How much memory a training may take on this machine: by its control groups and by the RAM."""

from __future__ import annotations

from ..beacon.reflexes import _host_room


def room() -> tuple[int, str] | None:
    """Bytes, and what sets them."""
    found = [(limit, "the container's limit") for _, limit in _host_room.groups()]
    found += [(free, "the RAM that is free") for free in _host_room.available()]
    return min(found) if found else None
