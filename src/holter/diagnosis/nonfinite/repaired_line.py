"""A line of the user's with an epsilon or a clamp where a function meets its edge."""

from __future__ import annotations

import ast

from holter.source.syntax import parse

_EPSILON = " + 1e-8"
_LIBRARIES = ("torch", "tf", "np", "numpy", "math", "ops", "K", "F")


def repaired_line(code: str, edge: str) -> str:
    """Give the line as it should be; empty where it is not known how."""
    try:
        tree = parse(code)
    except (SyntaxError, ValueError):
        return ""
    wanted = {word for word in ("log", "sqrt", "exp") if word in edge}
    wanted |= {"sqrt"} if "root" in edge else set()
    insertions: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in wanted:
            insertions += _around_call(node, node.func)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and ("divi" in edge or "/ 0" in edge):
            divisor = node.right
            if not isinstance(divisor, ast.Constant):
                insertions += [(divisor.col_offset, "("), (divisor.end_col_offset or 0, _EPSILON + ")")]
    line = code.encode()
    for at, words in sorted(insertions, key=lambda one: -one[0]):
        line = line[:at] + words.encode() + line[at:]
    return line.decode() if insertions else ""


def _around_call(node: ast.Call, function: ast.Attribute) -> list[tuple[int, str]]:
    bound = ".clamp(max=30)" if function.attr == "exp" else ".clamp(min=1e-8)"
    root: ast.expr = function.value
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(root, ast.Name) and root.id in _LIBRARIES and node.args:
        argument = node.args[0]
        if function.attr == "exp":
            return []
        loose = isinstance(argument, (ast.Compare, ast.BoolOp, ast.IfExp, ast.Lambda))
        return [] if loose else [(argument.end_col_offset or 0, _EPSILON)]
    # A method of a tensor: what it is called on is clamped first.
    return [(function.value.end_col_offset or 0, bound)] if not node.args else []
