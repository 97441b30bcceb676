"""Lines of the user's where a function has an edge and nothing keeps values away from it."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from holter.source.lines import tree_of

_CALLS = {
    "log": "log", "log2": "log", "log10": "log", "sqrt": "sqrt", "rsqrt": "sqrt", "norm": "sqrt", "acos": "acos",
    "asin": "asin", "divide": "div", "truediv": "div", "div": "div", "reciprocal": "div", "exp": "exp",
    "pow": "pow", "euclidean_norm": "sqrt", "reduce_euclidean_norm": "sqrt", "reduce_std": "sqrt",
}  # fmt: skip
# NumPy and math work on data and on plain numbers: what they meet is not trained.
_ASIDE = ("np", "numpy", "math", "random", "logging", "self", "logger", "writer", "mlflow", "wandb")
_SAFE = re.compile(r"eps|1e-|e-0|e-1|\bclip|clamp|maximum|max\(|softplus|_nan|stable|\+ 1(?:\.0*)?\b", re.IGNORECASE)
# What is counted is not zero, and what is printed is not trained.
_COUNTS = re.compile(
    r"len\(|\bn\b|num|count|steps?\b|epochs?|batch|size|shape|total|float\(|int\(|time|\b\d", re.IGNORECASE
)


def edge_calls(lines: Sequence[str]) -> list[tuple[int, str]]:
    """Give the line and the kind of each unprotected `log`, `sqrt`, `exp`, division and the like, surest first."""
    tree = tree_of(lines)
    if tree is None:
        return []
    found: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CALLS:
            root = node.func.value
            inside = ", ".join(ast.unparse(argument) for argument in node.args)
            aside = isinstance(root, ast.Name) and root.id in _ASIDE
            plain = not node.args and isinstance(root, ast.Name) and root.id in _ASIDE
            if not aside and not plain and not _SAFE.search(inside + ast.unparse(root)):
                found.setdefault(node.lineno, _CALLS[node.func.attr])
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            divisor = ast.unparse(node.right)
            if not (isinstance(node.right, ast.Constant) or _SAFE.search(divisor) or _COUNTS.search(divisor)):
                found.setdefault(node.lineno, "div")
    order = ("log", "sqrt", "acos", "asin", "exp", "div", "pow")
    return sorted(found.items(), key=lambda one: (order.index(one[1]), one[0]))
