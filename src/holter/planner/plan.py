"""From what a person hands in to a plan: finds the framework, the device and the batch, and keeps the process as it is.

Where it can, the whole plan is made in a forked child: it loads much, and the parent is left without any of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .amounts import bytes_of
from .aside import Lost, aside, can_fork
from .torch.batch import leaves, rows_of
from .torch.step import Recipe


def make_plan(
    model: Any,
    batch: Any = None,
    optimizer: Any = None,
    loss: Callable[..., Any] | None = None,
    *,
    step: Callable[[Any, Any], Any] | None = None,
    make_batch: Callable[[int], Any] | None = None,
    batch_size: int | None = None,
    batch_dim: int = 0,
    precision: str | None = None,
    memory: int | str | None = None,
    device: str | None = None,
    table: bool = True,
    measure: bool = True,
    seconds: float = 60.0,
) -> dict[str, Any]:
    """The plan as plain data; see `holter.plan` for what each argument is."""
    limit = bytes_of(memory) if memory is not None else None
    if any(kind.__module__.split(".")[0] in ("keras", "tensorflow", "tf_keras") for kind in type(model).__mro__):
        from .plan_keras import plan_keras

        return plan_keras(model, batch, batch_size, limit, table)
    import torch

    if batch is None and make_batch is not None:
        batch = make_batch(batch_size or 4)
    rows = batch_size or rows_of(torch, batch, batch_dim)
    if not rows:
        raise ValueError("the batch has no tensor with samples in it. Give batch_size=... and make_batch=...")
    has = rows_of(torch, batch, batch_dim) or rows
    if make_batch is None and has != rows:
        from .torch.batch import resized

        first = next(leaves(torch, batch)).device
        batch = resized(torch, batch, has, rows, batch_dim, first, fake=False)
    recipe = Recipe(model, batch, rows, optimizer, loss, step, make_batch, batch_dim, precision)
    kind = device or _device_of(torch, model)

    from .torch.plan import base_of

    base = base_of(torch, recipe) if kind == "cpu" else 0  # here: a forked child counts fewer pages as its own

    def make() -> dict[str, Any]:
        from .memory_budget import memory_budget_for
        from .small_steps import plan_by_steps
        from .torch.plan import Planner

        if limit is None:
            memory_budget_for(torch, kind)  # says what is missing before anything is tried
        try:
            planner = Planner(torch, recipe, kind, limit, base=base, measures=measure)
        except Exception as error:
            return plan_by_steps(torch, recipe, kind, limit, base, f"{type(error).__name__}: {str(error)[:160]}")
        return planner.plan(table, seconds)

    touched = kind == "cuda" and torch.cuda.is_initialized()
    if can_fork() and not touched:
        try:
            answer: dict[str, Any] = aside(make, patience=3 * seconds + 240)
        except Lost as lost:
            raise ValueError(f"no plan could be made: {lost}") from None
        return answer
    return make()


def _device_of(torch: Any, model: Any) -> str:
    """Where the model lies; a model on the CPU of a machine with a GPU will be trained there."""
    first = next(iter(model.parameters()), None)
    if first is not None and first.device.type != "cpu":
        return str(first.device.type)
    # The driver must not be woken in this process: a forked child could not use it then.
    before = os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK")
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    try:
        return "cuda" if torch.cuda.is_available() else "cpu"
    finally:
        if before is None:
            del os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"]
        else:
            os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = before
