"""How much memory there is for a training on a device: bytes, and what sets them."""

from __future__ import annotations

import importlib
import sys
from typing import Any

_PLATFORMS = {"linux": "memory_budget_linux", "darwin": "memory_budget_macos"}


def memory_budget_for(torch: Any, kind: str) -> tuple[int, str]:
    """The memory of a device of this kind; asked of the driver for a GPU, of the system for the rest."""
    if kind == "cuda":
        if not torch.cuda.is_available():
            raise ValueError("there is no CUDA device here: say how much memory it has, such as --memory 24GB")
        free, total = torch.cuda.mem_get_info(0)
        held = torch.cuda.memory_reserved(0)
        return int(free + held), f"what is free of the GPU's {total / 1e9:.0f} GB"
    name = _PLATFORMS.get(sys.platform)
    found = importlib.import_module(f"{__package__}.{name}").memory_budget() if name else None
    if found is None:
        raise ValueError("how much memory this machine has is not known: say it, such as --memory 16GB")
    return int(found[0]), str(found[1])
