"""An evaluation builds autograd graphs that nobody uses.

What it does: finds a loop over batches that runs a model in `eval()` mode, with no `no_grad` or `inference_mode` and no
backward().
Why it halts or slows a run: every activation of the forward pass is kept for a backward that never comes: validation
then needs several times the memory of inference, and a run that fits in training dies in its first validation.
Example:
    model.eval()
    for x, y in val_loader:
        correct += (model(x).argmax(1) == y).sum().item()
Instead:
    model.eval()
    with torch.no_grad():
        for x, y in val_loader:
            correct += (model(x).argmax(1) == y).sum().item()
When the fix is safe: where the evaluation is a function of its own that computes no gradients: `@torch.no_grad()` is
put above it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.edits import before
from holter.check.problem import Edit, Hit
from holter.finding import Cure
from holter.source.bindings import dotted
from holter.source.module import Function, Module
from holter.source.values import is_loader, statements_after

CODE = "HLT106"
CAUSE = "leak.graph-retained"
NEEDS = (".eval()",)
CURES = (Cure("make no graph where nothing is trained", "+ with torch.no_grad():"),)

_HELD_OUT = re.compile(r"(?:val|valid|validation|test|dev|eval|holdout)(?:_?(?:set|data|batches|ds|dl|iter))?$")
_GRADIENTS = ("requires_grad", "autograd", ".grad", "enable_grad", "backward", "no_grad", "inference_mode", "jacobian",
              "volatile", "torch.jit", "attack", "zero_grad")  # fmt: skip


def examine(module: Module) -> Iterator[Hit]:
    """Look at what follows `eval()`: in a function that trains nothing, or up to the next `train()` in a loop."""
    if not module.imports.uses("torch"):
        return
    for call, owner in module.calls_of("eval"):
        if call.args or call.keywords:
            continue
        name = dotted(owner)
        scope = module.scope_of(call)
        if not name or module.in_torch_model(call):
            continue
        if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) or _trains(module, scope):
            yield from _amid_training(module, call, name)
            continue
        said = module.said(scope)
        if any(word in said for word in _GRADIENTS) or ".train()" in said:
            continue
        for loop in module.loops:
            if module.scope_of(loop) is not scope or loop.lineno < call.lineno or not isinstance(loop, ast.For):
                continue
            forward = [one for one in module.calls_in(loop) if dotted(one.func) == name]
            if not forward or not is_loader(module, loop.iter) or module.training.without_gradients(forward[0]):
                continue
            if _frozen(module) or _handed_on(module, scope, name):
                continue
            claim = f"`{scope.name}` runs `{name}` over batches and keeps a graph of each, though it trains nothing"
            yield Hit(loop, claim, "warning", None, _fix(module, scope))
            break


def _amid_training(module: Module, call: ast.Call, name: str) -> Iterator[Hit]:
    """An evaluation in the block of a training: the loops over batches after `eval()`, up to `train()`."""
    for statement in statements_after(module, module.statement_of(call)):
        said = module.said(statement)
        if f"{name}.train(" in said or any(word in said for word in _GRADIENTS):
            return
        if not isinstance(statement, ast.For) or not is_batches(module, statement.iter):
            continue
        forward = [one for one in module.calls_in(statement) if dotted(one.func) == name]
        if not forward or module.training.without_gradients(forward[0]) or _frozen(module):
            continue
        claim = f"this evaluation runs `{name}` over batches and keeps a graph of each, though it trains nothing"
        yield Hit(statement, claim, "warning", None, ())
        return


def is_batches(module: Module, iterated: ast.expr) -> bool:
    """Whether a loop is over batches: of a loader, or of what an evaluation is called by."""
    given = iterated
    while isinstance(given, ast.Call) and given.args:
        given = given.args[0]
    return is_loader(module, iterated) or bool(_HELD_OUT.match(dotted(given).rpartition(".")[2]))


def _trains(module: Module, scope: Function) -> bool:
    return any(module.scope_of(mark) is scope for mark in (*module.training.backwards, *module.training.steps))


def _handed_on(module: Module, scope: Function, name: str) -> bool:
    """Whether the model is given to something else, which may need its gradients: an attack, an explanation."""
    return any(
        dotted(given) == name
        for call in module.calls_in(scope)
        for given in (*call.args, *(word.value for word in call.keywords))
    )


def _frozen(module: Module) -> bool:
    return "requires_grad_(False)" in module.text or "requires_grad = False" in module.text


def _fix(module: Module, scope: Function) -> tuple[Edit, ...]:
    if module.imports.names.get("torch") != "torch" or scope.decorator_list:
        return ()
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in module.within(scope)):
        return ()
    indent = " " * scope.col_offset
    return (before(scope, f"@torch.no_grad()\n{indent}"),)
