"""A model is cast to float16 and then trained with a GradScaler.

What it does: finds `model.half()` or `.to(torch.float16)` in a file that steps a GradScaler.
Why it halts or slows a run: a scaler is for float32 weights: with float16 ones its first step raises "Attempting to
unscale FP16 gradients". Without the scaler small updates vanish: float16 has no room for them.
Example:
    model = model.half()
    scaler = torch.amp.GradScaler("cuda")
Instead:
    scaler = torch.amp.GradScaler("cuda")       # the weights stay float32
    with torch.autocast("cuda", torch.float16):
        loss = loss_fn(model(x), y)
When the fix is safe: never by itself: inputs that are cast by hand have to change with it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import called_on
from holter.source.halves import half_models
from holter.source.module import Module

CODE = "HLT301"
CAUSE = "nan.precision"
NEEDS = ("GradScaler",)
CURES = (
    Cure("float32 weights with autocast and a loss scaler, instead of half weights", "torch.amp.GradScaler", "changed"),
)


def examine(module: Module) -> Iterator[Hit]:
    """Look for half models beside a scaler that is stepped."""
    scaled = [call for call in module.calls if _steps_scaler(module, call)]
    if not scaled:
        return
    for call, name in half_models(module):
        if any(module.scope_of(one) is module.scope_of(call) for one in scaled):
            claim = (
                f'`{name}` is cast to float16, and its first scaled step raises "Attempting to unscale FP16 gradients"'
            )
            yield Hit(module.statement_of(call), claim, "error")


def _steps_scaler(module: Module, call: ast.Call) -> bool:
    return module.kinds.of(called_on(call, "step")) == "scaler"
