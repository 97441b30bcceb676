"""The ways past a line: what lets a loop or a function go on without coming to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from holter.source.lines import tree_of

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LOOPS = (ast.For, ast.While, ast.AsyncFor)


def ways_past(lines: Sequence[str], line: int) -> list[int]:
    """Give the `continue`, `break` and `return` of the innermost loop around a line, or of its function without one.

    Whoever takes one does not come to the line: in this pass, or where it leaves the loop from below, in the next.
    """
    tree = tree_of(lines)
    if tree is None:
        return []
    around = [node for node in ast.walk(tree) if isinstance(node, (*_LOOPS, *_SCOPES)) and _holds(node, line)]
    if not around:
        return []
    inner = max(around, key=lambda node: node.lineno)
    ends_it = isinstance(inner, _LOOPS)
    body = inner.body if isinstance(inner.body, list) else []
    found = {jump.lineno: jump for jump in _jumps(body, in_loop=False)}
    return sorted(
        at for at, jump in found.items() if at < line or (ends_it and at > line and not isinstance(jump, ast.Continue))
    )


def _holds(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno < line <= (node.end_lineno or node.lineno)


def _jumps(body: Sequence[ast.AST], *, in_loop: bool) -> Iterator[ast.stmt]:
    """The jumps out of a body; those of a loop within it leave that loop only, but for a `return`."""
    for node in body:
        if isinstance(node, ast.Return) or (isinstance(node, (ast.Continue, ast.Break)) and not in_loop):
            yield node
        elif not isinstance(node, _SCOPES):
            yield from _jumps(list(ast.iter_child_nodes(node)), in_loop=in_loop or isinstance(node, _LOOPS))
