"""Lines on which the script hands something to an object of a library's, by the name that it gave the object.

Such an object (a metric, a logger, a queue) holds what it is handed in attributes of its own, which stand nowhere in
the script: the line that fills them is the one that calls it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from holter.source.lines import tree_of

_PART = re.compile(r"_modules\['(?P<module>\w+)'\]|\.?(?P<name>[A-Za-z]\w*)")
# What is asked of an object, in contrast to what it is handed.
_ASKS = frozenset(("reset", "compute", "to", "eval", "train", "result", "get", "close", "clear", "items", "keys"))
_FILLS = ("update", "append", "add", "push", "put", "log", "record", "update_state", "store", "extend")


def object_names(path: str) -> list[str]:
    """Give the names along a path such as `model._modules['auroc'].target`, without the last, the nearest first."""
    names = [found["module"] or found["name"] for found in _PART.finditer(path)]
    return names[-2::-1]


def call_on(lines: Sequence[str], name: str) -> int | None:
    """Give the first line that hands something to the object of this name."""
    tree = tree_of(lines)
    found: list[tuple[int, int]] = []
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.Call) or not (node.args or node.keywords):
            continue
        function = node.func
        if _named(function) == name:
            found.append((1, node.lineno))
        elif isinstance(function, ast.Attribute) and _named(function.value) == name and function.attr not in _ASKS:
            found.append((0 if function.attr in _FILLS else 2, node.lineno))
    return min(found)[1] if found else None


def is_reset(lines: Sequence[str], name: str) -> bool:
    """Tell whether the script ever empties the object."""
    return any(re.search(rf"\b{re.escape(name)}\.(?:reset|clear)\w*\(", line) for line in lines)


def _named(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
