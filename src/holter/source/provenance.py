"""Where a variable's value comes from: the lines of the script that it was made on, followed back through its names.

A look at the text alone: names are followed through assignments, loops and the script's own functions and classes,
whatever their scope. What it gives is a part of the script to look in, not a proof.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from holter.source.lines import called_name, tree_of

_MAX_NAMES = 200  # names that are followed at most
_PUT = frozenset(("append", "extend", "add", "insert", "update", "setdefault"))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def provenance(lines: Sequence[str], name: str) -> list[ast.AST]:
    """Give the statements and functions that a variable's value comes from, the nearest first."""
    tree = tree_of(lines)
    if tree is None or not name.isidentifier():
        return []
    bindings: dict[str, list[tuple[ast.stmt, ast.expr]]] = {}
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)}
    for node in ast.walk(tree):
        for target, value in _bound(node):
            bindings.setdefault(target, []).append((node, value))  # type: ignore[arg-type]
    found: list[ast.AST] = []
    waiting, known = [name], {name}
    while waiting and len(known) < _MAX_NAMES:
        present = waiting.pop(0)
        used: list[ast.AST] = []
        for statement, value in bindings.get(present, ()):
            found.append(statement)
            used.append(value)
        if present in functions:
            found.append(functions[present])
            used.append(functions[present])
        for one in (name for node in used for name in _names(node)):
            if one not in known:
                known.add(one)
                waiting.append(one)
    return found


def _bound(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names that a statement gives a value, also in part, with what it comes from."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)) and node.value is not None:
        targets, value = [node.target], node.value
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        targets, value = [node.target], node.iter
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called_name(node.value) in _PUT:
        targets, value = [node.value.func], node.value
    for target in targets:
        for inner in ast.walk(target):
            if isinstance(inner, ast.Name):
                yield inner.id, value
            elif isinstance(inner, ast.Attribute):
                yield inner.attr, value


def _names(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "self":
            yield inner.attr
        elif isinstance(inner, ast.Call):
            yield called_name(inner)
