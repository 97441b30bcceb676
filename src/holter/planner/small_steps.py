"""A plan without fake tensors, for a model that they can't run: three small real steps, and a line through them."""

from __future__ import annotations

import time
from typing import Any

from .fit import Kind, corrected
from .largest import largest
from .measured_torch import first_error, good, measure
from .room import room_for
from .step_torch import Recipe
from .unseen_cuda import CONTEXT

_STEPS = Kind(calibrated=0.06, blind=0.3, most=0.1)


def plan_by_steps(torch: Any, recipe: Recipe, kind: str, memory: int | None, base: int, why: str) -> dict[str, Any]:
    """The plan that can still be made; raises ValueError where nothing could be measured."""
    began = time.monotonic()
    limit, source = (memory, "as asked") if memory else room_for(torch, kind)
    device = torch.device(kind, 0) if kind == "cuda" else torch.device(kind)
    sizes = sorted({max(1, min(recipe.rows, n)) for n in (2, 4, 8)})
    found = measure(torch, [(recipe, size) for size in sizes], device)
    seen = good(found)
    if not seen:
        raise ValueError(f"the step can't be run, neither on fake tensors ({why}) nor as it is ({first_error(found)})")
    fit = corrected([(m.rows, 0, m.peak - (m.began - base if kind == "cpu" else 0)) for m in seen], _STEPS)
    context = max(m.context for m in seen) or (CONTEXT if kind == "cuda" else 0)

    def fits(rows: int) -> bool:
        return fit.at(rows, 0).high + context <= limit

    best = largest(fits, recipe.rows)
    curve = sorted({max(1, recipe.rows // 2), recipe.rows, recipe.rows * 2, best} - {0})
    return {
        "schema": 1,
        "framework": "torch",
        "version": str(torch.__version__),
        "device": kind,
        "memory": limit,
        "memory_from": source,
        "counts": "the process" if kind == "cpu" else "tensors on the device",
        "batch": recipe.rows,
        "peak": fit.at(recipe.rows, 0).told(),
        "parts": {},
        "phase": "",
        "context": context,
        "fits": fits(recipe.rows),
        "curve": [{"batch": n, **fit.at(n, 0).told()} for n in curve],
        "largest": {"batch": best, **(fit.at(best, 0).told() if best else {})},
        "measured": [{"batch": m.rows, "peak": m.peak, "seconds": m.seconds} for m in seen],
        "notes": [f"fake tensors can't run this step ({why}): it is drawn from {len(seen)} small real ones"],
        "seconds": round(time.monotonic() - began, 2),
    }
