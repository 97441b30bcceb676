"""What is kept, cut from its graph: a display of several things, and a state that is made from itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from holter.source.lines import is_named, tree_of
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


def cut_where_used(code: str, variable: str, lines: Sequence[str], *, in_parts: bool) -> str | None:
    """Give `h = cell(x, h)` as `h = cell(x, h.detach())`: what the step computes keeps its gradient, and the steps
    before it are let go. None for a statement that does not make the variable from itself."""
    try:
        statement = parse(code).body[0]
    except (SyntaxError, ValueError, RecursionError, MemoryError, IndexError):
        return None
    if not isinstance(statement, ast.Assign) or not code.isascii():
        return None
    used = [part for part in ast.walk(statement.value) if is_named(part, variable)]
    arguments = [id(one) for part in ast.walk(statement.value) if isinstance(part, ast.Call) for one in part.args]
    maybe_none = _begins_as_none(lines, variable)
    for part in sorted(used, key=lambda one: -one.col_offset):
        end = part.end_col_offset or 0
        name = code[part.col_offset : end]
        cut = f"tuple(part.detach() for part in {name})" if in_parts else f"{name}.detach()"
        if maybe_none:
            cut = f"None if {name} is None else {cut}"
            cut = cut if id(part) in arguments else f"({cut})"
        code = code[: part.col_offset] + cut + code[end:]
    return code if used else None


def _begins_as_none(lines: Sequence[str], variable: str) -> bool:
    """Tell whether the script sets it to None, in whatever assignment."""
    tree = tree_of(lines)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                if any(
                    is_named(to, variable) and isinstance(of, ast.Constant) and of.value is None for to, of in pairs
                ):
                    return True
    return False


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
