"""What is kept as a tuple, a list or a dict of several things: each tensor in it cut from its graph."""

from __future__ import annotations

import ast
import re

from holter.source.syntax import parse

_WORDS = re.compile(r"[A-Z]?[a-z]+")
_NUMBERS = re.compile(r"loss(?:es)?|mse|mae|nll|error|perplexity|acc(?:uracy)?")
_TENSORS = re.compile(
    r"out(?:put)?s?|logits?|pred(?:iction)?s?|hidden|states?|embeddings?|features?|activations?|scores?|probs?|latents?|[hyz]"
)
_MODELS = re.compile(r"model|net|network|forward")


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
        return ".item()" if _says(name, _NUMBERS) else ".detach()" if _says(name, _MODELS) else ""
    name = part.attr if isinstance(part, ast.Attribute) else part.id if isinstance(part, ast.Name) else ""
    return ".item()" if _says(name, _NUMBERS) else ".detach()" if _says(name, _TENSORS) else ""


def _says(name: str, words: re.Pattern[str]) -> bool:
    return any(words.fullmatch(word.lower()) for word in _WORDS.findall(name))
