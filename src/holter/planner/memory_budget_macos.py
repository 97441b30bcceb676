"""How much memory a training may take on a Mac: CPU and GPU share one pool, and swap sets in before it is full."""

from __future__ import annotations

import os

# What macOS and its programs keep; Metal recommends about as much for itself.
_SHARE = 0.75


def memory_budget() -> tuple[int, str] | None:
    """Bytes, and what sets them."""
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
    return int(whole * _SHARE), "three quarters of the RAM"
