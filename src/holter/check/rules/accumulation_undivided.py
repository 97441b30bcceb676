"""Gradients of several batches are added up, and the loss is not divided by their number.

What it does: finds a step that is taken every n batches, where no division by n is to be seen.
Why it halts or slows a run: the sum of n gradients is n times their mean: the learning rate is in effect n times what
it says, and the loss may run away. With the loss divided, n batches give the update of one that is n times as large.
Example:
    loss.backward()
    if (i + 1) % 4 == 0:
        optimizer.step(); optimizer.zero_grad()
Instead:
    (loss / 4).backward()
    if (i + 1) % 4 == 0:
        optimizer.step(); optimizer.zero_grad()
When the fix is safe: never by itself: a rate that was tuned for the sum has to be tuned again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.accumulation import accumulations
from holter.source.bindings import dotted
from holter.source.module import Module

CODE = "HLT203"
CAUSE = None
NEEDS = ("zero_grad",)
CURES = (
    Cure(
        "divide the loss by the number of batches that are added up",
        "- loss.backward()\n+ (loss / n).backward()",
        "changed",
    ),
)

_DIVIDES = re.compile(r"\bdiv_?\(|\bmul_?\(|normali[sz]e|reduction\s*=\s*['\"]sum|scale_grad|rescale|\bmean_over")


def examine(module: Module) -> Iterator[Hit]:
    """Look for any division of the loss in the loop, and in what it calls."""
    for found in accumulations(module):
        owner = dotted(found.backward.func)
        # Accelerate and DeepSpeed divide by themselves.
        if re.search(r"accelerator|engine|fabric", owner) or (
            "accumulat" in module.said(found.loop).lower() and "accelerator" in module.text
        ):
            continue
        if _divided(module, found.loop):
            continue
        every = ast.unparse(found.every)
        claim = f"the gradients of {every} batches are added up, and the loss is not divided by {every}"
        yield Hit(module.statement_of(found.backward), claim)


def _divided(module: Module, loop: ast.AST, depth: int = 2) -> bool:
    for node in ast.walk(loop):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return True
        if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Div, ast.Mult)):
            return True
    if _DIVIDES.search(module.said(loop)):
        return True
    return depth > 0 and any(
        _divided(module, function, depth - 1) for call in module.calls_in(loop) if (function := module.callee(call))
    )
