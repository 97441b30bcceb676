"""How much memory there is for a training on a device: bytes, and what sets them."""

from __future__ import annotations

import os
import sys
from typing import Any

from ..facts import host_memory

# What macOS and its programs leave; Metal recommends about as much for itself.
_MAC_SHARE = 0.75


def memory_budget_for(torch: Any, kind: str) -> tuple[int, str]:
    """The memory of a device of this kind; asked of the driver for a GPU, of the system for the rest."""
    if kind == "cuda":
        if not torch.cuda.is_available():
            raise ValueError("this machine has no CUDA device. Give its memory, such as --memory 24GB")
        free, total = torch.cuda.mem_get_info(0)
        held = torch.cuda.memory_reserved(0)
        return int(free + held), f"what is free of the GPU's {total / 1e9:.0f} GB"
    found = [(limit, "the container's limit") for _, limit in host_memory.groups()]
    found += [(free, "the RAM that is free") for free in host_memory.available()]
    if sys.platform == "darwin":  # CPU and GPU share one pool, and swap sets in before it is full
        ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        found.append((int(ram * _MAC_SHARE), "three quarters of the RAM"))
    if not found:
        raise ValueError("the memory of this machine is not known. Give it, such as --memory 16GB")
    return min(found)
