"""What is kept as a tuple, a list or a dict of several things: each tensor in it cut from its graph."""

from __future__ import annotations

import ast
import re

from holter.syntax import parse

_NUMBER = re.compile(r"loss|error|\bmse\b|\bnll\b|perplexity|accuracy|\bacc\b", re.IGNORECASE)
_TENSOR = re.compile(r"out|logit|pred|hidden|state|embed|feature|activation|score|prob|latent|\b[hyz]\b", re.IGNORECASE)


def cut_parts(kept: str) -> str | None:
    """Give the display with `.item()` or `.detach()` on its tensors, as their names tell; None for what is no display.

    A part whose name tells nothing may be a number or a text, and stays as it is.
    """
    try:
        tree = parse(f"({kept})").body[0]
    except (SyntaxError, ValueError, RecursionError, MemoryError, IndexError):
        return None
    value = tree.value if isinstance(tree, ast.Expr) else None
    if isinstance(value, (ast.Tuple, ast.List)):
        parts = value.elts
    elif isinstance(value, ast.Dict):
        parts = value.values
    else:
        return None
    line = f"({kept})".encode()
    for part in sorted(parts, key=lambda one: -one.col_offset):
        call = _call_for(part)
        if call and part.lineno == part.end_lineno == 1:
            end = part.end_col_offset or 0
            line = line[:end] + call.encode() + line[end:]
    return line.decode()[1:-1]


def _call_for(part: ast.expr) -> str:
    if isinstance(part, ast.Call):
        name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
        if name in ("item", "detach", "float", "int", "len", "str", "cpu", "numpy", "tolist"):
            return ""
        return ".item()" if _NUMBER.search(name) else ".detach()" if "model" in name or "net" in name else ""
    name = part.attr if isinstance(part, ast.Attribute) else part.id if isinstance(part, ast.Name) else ""
    return ".item()" if _NUMBER.search(name) else ".detach()" if _TENSOR.search(name) else ""
