"""Each pass of a loop writes all that the passes before it have collected.

What it does: finds a list of tensors that a loop fills and that the same loop saves, whole, again and again.
Why it halts or slows a run: the list grows in memory with every pass, and the n-th save writes n parts: the time and
the disk that saving takes grow with the square of the run.
Example:
    for epoch in range(epochs):
        outputs.append(model(x).detach())
        torch.save({"outputs": outputs}, path)
Instead:
    for epoch in range(epochs):
        torch.save(model(x).detach(), folder / f"outputs-{epoch}.pt")
When the fix is safe: never by itself: whoever reads the file expects the list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import called_on, dotted
from holter.source.module import Module
from holter.source.values import names_in

CODE = "HLT108"
CAUSE = "leak.tensors-kept"
NEEDS = ("torch.save", "pickle.dump", "np.save", "numpy")
AND_NEEDS = ("save", "dump")
CURES = (
    Cure(
        "keep only the numbers you need of each, or write them to disk and clear it after each epoch", "", "equivalent"
    ),
)

_SAVES = ("torch.save", "pickle.dump", "numpy.save", "numpy.savez", "joblib.dump")
_NUMBERS = ("item", "mean", "tolist")


def examine(module: Module) -> Iterator[Hit]:
    """Look for saves in a loop of what an inner or the same loop appends tensors to."""
    for call in module.calls:
        if module.qualified(call.func) not in _SAVES or not call.args:
            continue
        loop = module.loop_of(call)
        if loop is None:
            continue
        saved = names_in(call.args[-1] if module.qualified(call.func).startswith("numpy") else call.args[0])
        for name in sorted(saved):
            grown = [one for one in module.calls_in(loop) if _appends_tensor(module, one, name)]
            if grown and not _emptied(module, loop, name, grown[0]):
                claim = f"every pass saves all of `{name}`, which grows by a tensor each time (line {grown[0].lineno})"
                yield Hit(module.statement_of(call), claim)
                break


def _appends_tensor(module: Module, call: ast.Call, name: str) -> bool:
    owner = called_on(call, "append")
    if owner is None or dotted(owner) != name or not call.args:
        return False
    given = call.args[0]
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute):
        inner: ast.expr = given
        while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            if inner.func.attr in _NUMBERS:
                return False
            if inner.func.attr in ("detach", "cpu", "clone"):
                return True
            inner = inner.func.value
        return module.kinds.of(given.func) == "torch-model"
    return False


def _emptied(module: Module, loop: ast.AST, name: str, grown: ast.Call) -> bool:
    bound = module.bound(grown, name)
    return any(one.how == "set" and module.inside(one.node, loop) for one in bound) or any(
        owner is not None and dotted(owner) == name
        for owner in (called_on(call, "clear", "pop") for call in module.calls_in(loop))
    )
