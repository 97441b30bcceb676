"""A plan from what an agent saw of a script's own steps: its model, the batch it was called with, and its loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .amounts import bytes_of
from .aside import aside, can_fork
from .process_memory import highest, resident
from .small_steps import plan_by_steps
from .torch.batch import rows_of
from .torch.plan import Planner
from .torch.step import Recipe, surrogate


def plan(torch: Any, call: tuple[Any, ...], loss: tuple[Any, ...] | None, optimizer: Any, order: dict[str, Any]) -> Any:
    """The plan as plain data."""
    model, args, kwargs, shape, precision = call
    replayed = _replay(torch, loss, shape)
    batch = {"args": list(args), "kwargs": dict(kwargs), "target": loss[2] if loss and replayed else None}
    rows = rows_of(torch, {"args": batch["args"], "kwargs": batch["kwargs"]})
    if not rows:
        raise ValueError("the model is called without tensors: make the plan from Python, with holter.plan")

    def step(net: Any, given: Any) -> Any:
        found = net(*given["args"], **given["kwargs"])
        if replayed is not None and isinstance(found, torch.Tensor):
            return replayed(found, given["target"])
        own = found.get("loss") if isinstance(found, dict) else getattr(found, "loss", None)
        return own if own is not None else surrogate(torch, found)

    recipe = Recipe(model, batch, rows, optimizer, step=step, precision=precision)
    own = next(iter(model.parameters())).device.type
    kind = order.get("device") or own
    limit = bytes_of(order["memory"]) if order.get("memory") else None
    seen = 0
    if kind == own and not order.get("before"):  # no step was run: nothing was seen
        seen = int(torch.cuda.max_memory_allocated()) if kind == "cuda" else highest() if kind == "cpu" else 0
    held = sum(p.grad.numel() * p.grad.element_size() for p in model.parameters() if p.grad is not None)
    base = max(0, resident() - held) if kind == "cpu" else 0

    def make() -> dict[str, Any]:
        try:
            planner = Planner(torch, recipe, kind, limit, base=base, measures=bool(order.get("measure", True)))
        except Exception as error:
            return plan_by_steps(torch, recipe, kind, limit, base, f"{type(error).__name__}: {str(error)[:160]}")
        if replayed is None and loss is not None:
            planner.notes.append("the script's own loss can't be replayed: what it takes is measured at its batch size")
        if seen:
            planner.learn(rows, seen)
        told = planner.told(bool(order.get("table", True)), float(order.get("seconds", 60.0)))
        told["seen"] = {
            "model": type(model).__name__,
            "parameters": sum(p.numel() * p.element_size() for p in model.parameters()),
            "optimizer": type(optimizer).__name__,
            "inputs": [[list(t.shape), str(t.dtype)] for t in args if isinstance(t, torch.Tensor)],
            "peak": seen,
        }
        return told

    return aside(make, 600.0) if kind == "cpu" and can_fork() else make()


def _replay(torch: Any, loss: tuple[Any, ...] | None, shape: Any) -> Callable[[Any, Any], Any] | None:
    """The script's loss as a function of the model's output, where it was made of it as it is or flattened."""
    if loss is None or shape is None:
        return None
    function, given, target, args, kwargs = loss
    if not isinstance(target, torch.Tensor):
        return None
    if tuple(shape) == given and target.dim() and int(target.shape[0]) == int(shape[0]):
        return lambda out, to: function(out, to, *args, **kwargs)
    count = 1
    for n in shape:
        count *= int(n)
    if len(given) == 2 and given[0] * given[1] == count and given[1] == shape[-1]:
        flat = target.dim() == 1

        def over_rows(out: Any, to: Any) -> Any:
            whole = out.reshape(-1, out.shape[-1])
            if flat:  # the target was flattened with it, and does not grow by rows of the batch
                to = torch.zeros(whole.shape[0], dtype=target.dtype, device=whole.device)
            return function(whole, to, *args, **kwargs)

        return over_rows
    return None
