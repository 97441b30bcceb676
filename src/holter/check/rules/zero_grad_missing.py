"""Gradients are never set back to zero in a training loop.

What it does: finds a loop with backward() and an optimizer's step() and no `zero_grad` in it or in what it calls.
Why it halts or slows a run: the gradients of all steps so far add up: updates get larger and larger until the loss is
non-finite.
Example:
    for x, y in loader:
        loss(model(x), y).backward()
        optimizer.step()
Instead:
    for x, y in loader:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
When the fix is safe: never by itself: the result changes, for the better.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import dotted
from holter.source.module import Function, Loop, Module, once
from holter.source.values import short_loop

CODE = "HLT201"
CAUSE = "nan.learning-rate"
OWN_CURE = True
NEEDS = (".backward(",)
CURES = (Cure("set the gradients back before each backward()", "+ optimizer.zero_grad()", "changed"),)

_CLEARS = re.compile(
    r"zero_grad|clear_grad|reset_grad|set_to_none|grad\s*=\s*None|grad\.zero_|\.grad\.data\.zero_|\boptimize\(|minimize\("
)


def examine(module: Module) -> Iterator[Hit]:
    """Look at loops with both marks in their own body and an optimizer of torch.optim."""
    for step in module.training.steps:
        optimizer = module.training.optimizer_of(step)
        loop = module.loop_of(step)
        if optimizer is None or loop is None or module.kinds.of(optimizer) != "torch-optimizer" or step.args:
            continue
        backward = module.training.backwards_of(loop)
        if not backward or module.conditions(step, loop) or short_loop(module, loop, 2):
            continue
        if _clears(module, loop, 3) or _made_within(module, loop, optimizer):
            continue
        if _outer_clears(module, loop):
            continue
        elsewhere = module.says(module.scope_of(loop), _CLEARS)
        hint = ": it stands outside of the loop" if "zero_grad" in elsewhere else ""
        yield Hit(
            module.statement_of(step),
            f"nothing in this loop sets the gradients back before the next backward(){hint}",
            "error",
        )


@once
def _clears(module: Module, node: ast.AST, depth: int) -> bool:
    if module.says(node, _CLEARS):
        return True
    if depth == 0:
        return False
    for call in module.calls_in(node):
        function: Function | None = module.callee(call)
        if function is not None and _clears(module, function, depth - 1):
            return True
    return False


@once
def _outer_clears(module: Module, loop: Loop) -> bool:
    """Whether this loop gathers the gradients of parts, and an outer one clears them: accumulation."""
    for outer in list(module.loops_of(loop)):
        for call in module.calls_in(outer):
            if not module.inside(call, loop) and "zero_grad" in dotted(call.func):
                # Cleared once for each pass of the outer loop, stepped at each of the inner: still piles up, but
                # may be meant; said only where it stands before both loops.
                return True
    return False


def _made_within(module: Module, loop: Loop, optimizer: ast.expr) -> bool:
    return any(module.inside(one.node, loop) for one in module.bound(optimizer, dotted(optimizer)))
