"""`zero_grad()` stands between backward() and step(): the step sees no gradients.

What it does: finds backward(), then `zero_grad()`, then step() of the same optimizer in one block.
Why it halts or slows a run: the gradients are thrown away before they are used. The run goes on to its end and learns
nothing.
Example:
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
Instead:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
When the fix is safe: never by itself: the model then learns, which is another result.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import dotted
from holter.source.module import Module, once

CODE = "HLT202"
CAUSE = None
NEEDS = ("zero_grad",)
CURES = (Cure("set the gradients back before backward(), or after step()", "", "changed"),)


def examine(module: Module) -> Iterator[Hit]:
    """Look at each `zero_grad` among the statements beside it."""
    for call, owner in module.calls_of("zero_grad"):
        statement = module.parents.get(call)
        if not isinstance(statement, ast.stmt):
            continue
        if _around(module, module.parents[statement], dotted(owner)).get(statement) == ("backward", "step"):
            yield Hit(statement, "the gradients are set to zero right before the step that needs them", "error")


@once
def _around(module: Module, above: ast.AST, name: str) -> dict[ast.stmt, tuple[str, str]]:
    """Give the marks that are nearest to each statement of a block: the last before it, the first after it."""
    found: dict[ast.stmt, tuple[str, str]] = {}
    for block in ("body", "orelse", "finalbody"):
        rows = getattr(above, block, None)
        rows = rows if isinstance(rows, list) else []  # a lambda's body is no block
        marks = [_mark(module, one, name) for one in rows]
        following, ahead = "", []
        for mark in reversed(marks):
            ahead.append(following)
            following = mark or following
        last = ""
        for one, mark, after in zip(rows, marks, reversed(ahead), strict=True):
            found[one] = (last, after)
            last = mark or last
    return found


def _mark(module: Module, statement: ast.stmt, name: str) -> str:
    """Say what a statement does to the gradients; anything unclear in between counts as a backward of its own."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            if module.training.lost(node) is not None:
                return "backward" if isinstance(statement, ast.Expr) else "unclear"
            it = module.training.optimizer_of(node)
            if it is not None and dotted(it) == name:
                return "step" if not node.args or node.func is not it else "unclear"
            # Another optimizer's step has used the gradients; what this one does with none may be its own affair.
            if it is not None or (isinstance(node.func, ast.Attribute) and "backward" in node.func.attr):
                return "unclear"
    call = statement.value if isinstance(statement, ast.Expr) else None
    return "unclear" if isinstance(call, ast.Call) and module.callee(call) is not None else ""
