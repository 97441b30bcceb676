"""A plan without fake tensors, for a model that they can't run: three small real steps, and a line through them."""

from __future__ import annotations

import time
from typing import Any

from .fit import Interval, Kind, corrected
from .largest import largest
from .memory_budget import memory_budget_for
from .torch.measured import LONG, SMALL, Measured, device_of, first_error, good, measure
from .torch.step import Recipe
from .torch.unseen import CONTEXT

_STEPS = Kind(calibrated=0.06, blind=0.3, most=0.1)


class Stepped:
    """What small real steps show: the peak at any size, by a line through them."""

    def __init__(self, torch: Any, recipe: Recipe, kind: str, memory: int | None, base: int, why: str) -> None:
        self.rows = recipe.rows
        self.memory, self.memory_from = (memory, "as asked") if memory else memory_budget_for(torch, kind)
        device = device_of(torch, kind)
        found = measure(torch, [(recipe, size) for size in sorted({min(recipe.rows, n) for n in (2, 4, 8)})], device)
        while good(found) and self._may_double(found, base):
            found += measure(torch, [(recipe, 2 * found[-1].rows)], device)
        self.seen = good(found)
        if not self.seen:
            failed = first_error(found)
            raise ValueError(f"the step can't be run, neither on fake tensors ({why}) nor as it is ({failed})")
        points = [(m.rows, 0, m.peak - (m.began - base if kind == "cpu" else 0)) for m in self.seen]
        self.fit = corrected(points, _STEPS)
        self.context = max(m.context for m in self.seen) or (CONTEXT if kind == "cuda" else 0)

    def _may_double(self, found: list[Measured], base: int) -> bool:
        """Whether a step of twice the size is still a small one: by the line through the last two."""
        if found[-1].error or len(found) < 2 or 2 * found[-1].rows > self.rows:
            return False
        last, before = found[-1], found[-2]
        more = last.peak - before.peak if last.rows > before.rows else 0
        budget = (self.memory - max(last.began, base)) * SMALL
        return 2 * last.seconds < LONG and last.peak + 2 * max(0, more) - max(last.began, base) < budget

    def peak(self, rows: int) -> Interval:
        return self.fit.at(rows, 0)

    def fits(self, rows: int) -> bool:
        return self.peak(rows).high + self.context <= self.memory

    def largest(self) -> int:
        return largest(self.fits, self.rows)


def plan_by_steps(torch: Any, recipe: Recipe, kind: str, memory: int | None, base: int, why: str) -> dict[str, Any]:
    """The plan that can still be made; raises ValueError where nothing could be measured."""
    began = time.monotonic()
    found = Stepped(torch, recipe, kind, memory, base, why)
    best = found.largest()
    curve = sorted({max(1, recipe.rows // 2), recipe.rows, recipe.rows * 2, best} - {0})
    return {
        "schema": 1,
        "framework": "torch",
        "version": str(torch.__version__),
        "device": kind,
        "memory": found.memory,
        "memory_from": found.memory_from,
        "counts": "the process" if kind == "cpu" else "tensors on the device",
        "batch": recipe.rows,
        "peak": found.peak(recipe.rows).as_dict(),
        "parts": {},
        "phase": "",
        "context": found.context,
        "fits": found.fits(recipe.rows),
        "curve": [{"batch": n, **found.peak(n).as_dict()} for n in curve],
        "largest": {"batch": best, **(found.peak(best).as_dict() if best else {})},
        "measured": [{"batch": m.rows, "peak": m.peak, "seconds": m.seconds} for m in found.seen],
        "notes": [
            f"fake tensors can't run this step ({why}): the plan is made from {len(found.seen)} small real steps"
        ],
        "seconds": round(time.monotonic() - began, 2),
    }
