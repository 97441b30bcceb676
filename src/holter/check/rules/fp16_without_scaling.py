"""A training computes in float16 and scales no loss.

What it does: finds backward() of a loss that was computed under a float16 autocast, or of a model cast to float16, in a
function with no loss scaler; in Keras, weights of float16, and `mixed_float16` with a training loop of its own that
does not scale.
Why it halts or slows a run: gradients below 0.00006 lose their digits in float16 and those below 0.00000006 are zero:
weights stop moving, or the loss becomes non-finite.
Example:
    with torch.autocast("cuda", torch.float16):
        loss = loss_fn(model(x), y)
    loss.backward()
Instead:
    with torch.autocast("cuda", torch.bfloat16):
        loss = loss_fn(model(x), y)
    loss.backward()
When the fix is safe: never by itself: another precision is another result.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.halves import float16, half_models
from holter.source.module import Module
from holter.source.values import text

CODE = "HLT304"
CAUSE = "nan.precision"
NEEDS = ("float16", "autocast", ".half(")
AND_NEEDS = (".backward", ".manual_backward", ".fit", "train_on_batch", "apply_gradients")
CURES = (
    Cure("bfloat16, which has the range of float32", "torch.autocast(device, torch.bfloat16)", "changed"),
    Cure("float32 weights with autocast and a loss scaler, instead of half weights", "torch.amp.GradScaler", "changed"),
)

_SCALES = re.compile(r"scaler|\.scale\(|loss_scale|accelerator|fabric|deepspeed|amp\.initialize|manual_backward", re.I)


_FITS = ("fit", "train_on_batch")


def examine(module: Module) -> Iterator[Hit]:
    """Look at autocasts and casts beside a plain backward()."""
    yield from _keras(module)
    stepped = {module.scope_of(one) for one in module.training.steps}
    plain = [
        call
        for call in module.training.backwards
        if (scope := module.scope_of(call)) in stepped and not module.says(scope, _SCALES)
    ]
    casts: dict[tuple[ast.AST, ast.AST | None], int] = {}  # where, and the line of the first
    for block in module.withs:
        if any(isinstance(one.context_expr, ast.Call) and float16(module, one.context_expr) for one in block.items):
            casts.setdefault((module.scope_of(block), module.loop_of(block)), block.lineno)
    last: dict[ast.AST, int] = {}
    for call in plain:
        scope = module.scope_of(call)
        last[scope] = max(last.get(scope, 0), call.lineno)
        if casts.get((scope, module.loop_of(call)), call.lineno + 1) <= call.lineno:
            claim = "the loss is computed in float16 and its backward() is not scaled: small gradients become zero"
            yield Hit(module.statement_of(call), claim)
    for cast, name in half_models(module) if plain else ():
        if cast.lineno < last.get(module.scope_of(cast), 0):
            claim = f"`{name}` is trained in float16 with no loss scaling: small gradients become zero"
            yield Hit(module.statement_of(cast), claim)


def _keras(module: Module) -> Iterator[Hit]:
    if re.search(r"LossScaleOptimizer|get_scaled_loss|scale_loss|mixed_bfloat16", module.text):
        return
    tapes = [call for call in module.training.steps if ast.unparse(call.func).endswith("apply_gradients")]
    fits = any(module.calls_of(*_FITS))
    for call in module.calls:
        named = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        policy = text(call.args[0]) if call.args else None
        wholly = named in ("set_global_policy", "set_dtype_policy", "set_floatx") and policy == "float16"
        if wholly and (fits or tapes):
            claim = "the weights themselves are float16: small updates and an optimizer's epsilon vanish"
            yield Hit(module.statement_of(call), claim)
        if (
            named in ("set_global_policy", "set_policy")
            and call.args
            and text(call.args[0]) == "mixed_float16"
            and tapes
        ):
            claim = "the training loop computes in float16 and applies its gradients with no loss scaling"
            yield Hit(module.statement_of(call), claim)
