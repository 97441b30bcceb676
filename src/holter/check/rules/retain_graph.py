"""`backward(retain_graph=True)` in a step with no second backward().

What it does: finds the only backward of a training step being told to keep its graph.
Why it halts or slows a run: every activation of the step stays in memory until the loss goes; where something links one
step to the next, such as a state that is not detached, the whole past stays and each step gets slower.
Example:
    loss.backward(retain_graph=True)
    optimizer.step()
Instead:
    loss.backward()
    optimizer.step()
When the fix is safe: never by itself: where PyTorch asked for it with "backward through the graph a second time", the
state that links the steps has to be detached first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import dotted
from holter.source.module import Module
from holter.source.values import argument, targets_of

CODE = "HLT104"
CAUSE = "leak.graph-retained"
NEEDS = ()
OR_WRITTEN = r"retain_graph\s*=\s*True"
CURES = (
    Cure("cut it from its graph before keeping it: .detach()", "- loss.backward(retain_graph=True)\n+ loss.backward()"),
)


def examine(module: Module) -> Iterator[Hit]:
    """Look for a retained graph that nothing in its function can use."""
    for call in module.training.backwards:
        kept = argument(call, "retain_graph")
        if not (isinstance(kept, ast.Constant) and kept.value is True):
            continue
        loop = module.loop_of(call)
        scope = module.scope_of(call)
        again = [one for one in module.training.backwards if module.scope_of(one) is scope and one is not call]
        steps = [one for one in module.training.steps if module.scope_of(one) is scope and module.loop_of(one) is loop]
        if again or not steps or loop is None or _asks_gradients(module, scope):
            continue
        if module.conditions(call, loop):
            continue
        lost = module.training.lost(call)
        if lost is not None and dotted(lost) in targets_of(loop):
            continue
        if not _made_here(module, loop, lost):
            continue
        claim = "the graph of each step is kept though no second backward() uses it"
        yield Hit(module.statement_of(call), claim)


def _made_here(module: Module, loop: ast.AST, lost: ast.expr | None) -> bool:
    """Whether the loss comes out of one call in the same turn: then its graph is of this turn."""
    name = dotted(lost) if lost is not None else ""
    bound = (
        [one for one in module.bound(lost, name) if module.inside(one.node, loop)] if name and lost is not None else []
    )
    return len(bound) == 1 and bound[0].how in ("set", "part") and isinstance(bound[0].value, ast.Call)


def _asks_gradients(module: Module, scope: ast.AST) -> bool:
    """Whether the function, or one of the file that it calls, differentiates in another way."""
    for call in module.calls_in(scope):
        name = dotted(call.func)
        if name.endswith(("autograd.grad", "jacobian", "hessian", "double_backward")) or name == "grad":
            return True
        function = module.callee(call)
        if function is not None:
            for inner in module.calls_in(function):
                if dotted(inner.func).endswith(("autograd.grad", ".backward")) or dotted(inner.func) == "grad":
                    return True
    return False
