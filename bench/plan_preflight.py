"""What torch-preflight foretells of a case of `bench/plan.py`, where it is installed: its tensors alone."""

from __future__ import annotations

from typing import Any

import torch


def forecast(model: Any, first: Any, optimizer: Any, rows: int, precision: str | None, checkpointing: bool) -> int:
    """The peak of the tensors in bytes; what it adds for CUDA's context and for holes is left out."""
    from torch_preflight.vram.costmodel import estimate  # type: ignore[import-not-found, unused-ignore]
    from torch_preflight.vram.guard import VRAMGuard  # type: ignore[import-not-found, unused-ignore]

    guard = VRAMGuard(
        model, optimizer=optimizer, batch_size=rows, precision="amp" if precision else None,
        gradient_checkpointing=checkpointing, example_input=first if isinstance(first, torch.Tensor) else None,
    )  # fmt: skip
    parts = estimate(guard.profile, guard.config).breakdown
    return int(parts.total - parts.cuda_context - parts.fragmentation)
