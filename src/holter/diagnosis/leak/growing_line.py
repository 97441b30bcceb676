"""The user's statement that makes a variable hold more, and that statement with something changed in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holter.source.lines import appends_to, is_named, loop_around, tree_of

_JOINS = frozenset(("cat", "concat", "concatenate", "append", "vstack", "hstack", "stack"))


@dataclass(frozen=True)
class Growing:
    """A statement: its line, its text, and where in the text stands what is being kept."""

    line: int
    code: str
    begin: int = 0
    end: int = 0
    how: str = ""
    simple: bool = True  # a method can be called on it as it stands

    @property
    def kept(self) -> str:
        """Give the source text of what is being kept."""
        return self.code[self.begin : self.end]

    def keeping_its(self, call: str) -> str:
        """Give the statement with a method called on what is being kept."""
        kept = self.kept if self.simple else f"({self.kept})"
        return f"{self.code[: self.begin]}{kept}{call}{self.code[self.end :]}"


def growing_line(
    lines: Sequence[str], variable: str, function: str = "", owner: str = "", key: str = "", *, top: bool = False
) -> Growing | None:
    """Find the statement that makes a variable grow, within its function or class, or at the `top` of the script."""
    tree = tree_of(lines)
    if tree is None or not variable:
        return None
    found = appends_to(lines, variable)
    within = [line for line in found if _inside(tree, line, function, owner)] or found
    keyed = [line for line in within if key and key in lines[line - 1]] or within
    looped = [line for line in keyed if loop_around(lines, line) is not None] or keyed
    # Of several places the last is the one in the innermost code: a first `append` often only sets things up.
    line = looped[-1] if looped else _fed_back(tree, lines, variable, function, owner, top=top)
    return _statement(tree, lines, line, variable) if line else None


def assigned_line(lines: Sequence[str], variable: str, owner: str = "") -> int | None:
    """Find the line that first gives a variable or an attribute its value."""
    tree = tree_of(lines)
    if tree is None:
        return None
    for node in _assignments(tree):
        if any(is_named(target, variable) for target in _targets(node)) and _inside(tree, node.lineno, "", owner):
            return node.lineno
    return None


def feeds_back(lines: Sequence[str], variable: str) -> bool:
    """Tell whether a variable's new value is made from its old one."""
    tree = tree_of(lines)
    found = tree is not None and any(
        any(is_named(target, variable) for target in _targets(node))
        and (isinstance(node, ast.AugAssign) or any(is_named(part, variable) for part in ast.walk(node.value or node)))
        for node in _assignments(tree)
        if node.value is not None
    )
    return bool(found)


def _fed_back(
    tree: ast.Module, lines: Sequence[str], variable: str, function: str, owner: str, *, top: bool
) -> int | None:
    """Find `h = cell(x, h)` or `mean = 0.9 * mean + 0.1 * loss`, else an assignment in a loop."""
    in_loop = None
    named = [node for node in _assignments(tree) if any(is_named(target, variable) for target in _targets(node))]
    # A variable of the same name in another function is another variable.
    own = [
        node
        for node in named
        if _inside(tree, node.lineno, function, owner) and not (top and _in_function(tree, node.lineno))
    ]
    for node in own or named:
        if node.value is not None:
            if any(is_named(part, variable) for part in ast.walk(node.value)):
                return node.lineno
            if loop_around(lines, node.lineno) is not None:
                in_loop = node.lineno
    return in_loop


def _in_function(tree: ast.Module, line: int) -> bool:
    return any(
        node.lineno <= line <= (node.end_lineno or 0)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )


def _assignments(tree: ast.Module) -> Iterator[ast.Assign | ast.AnnAssign | ast.AugAssign]:
    found = [node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign))]
    yield from sorted(found, key=lambda node: node.lineno)


def _targets(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[ast.AST]:
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        yield from target.elts if isinstance(target, ast.Tuple) else (target,)


def _inside(tree: ast.Module, line: int, function: str, owner: str) -> bool:
    for name in filter(None, (function, owner)):
        if not any(
            node.lineno <= line <= (node.end_lineno or 0)
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name
        ):
            return False
    return True


def _statement(tree: ast.Module, lines: Sequence[str], line: int, variable: str) -> Growing:
    raw = lines[line - 1] if 0 < line <= len(lines) else ""
    code, indent = raw.strip(), len(raw) - len(raw.lstrip())
    for node in ast.walk(tree):
        if getattr(node, "lineno", 0) != line or getattr(node, "end_lineno", 0) != line:
            continue
        kept, how = _kept_by(node, variable)
        if kept is not None and kept.end_col_offset is not None:
            # Columns are bytes in the tree and characters in the text.
            begin = len(raw.encode()[: kept.col_offset].decode(errors="replace")) - indent
            end = len(raw.encode()[: kept.end_col_offset].decode(errors="replace")) - indent
            simple = isinstance(kept, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
            return Growing(line, code, begin, end, how, simple)
    return Growing(line, code)


def _kept_by(node: ast.AST, variable: str) -> tuple[ast.expr | None, str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        base: ast.AST = node.func.value
        while isinstance(base, ast.Subscript):
            base = base.value
        if is_named(base, variable):
            return node.args[-1], node.func.attr
    if isinstance(node, ast.AugAssign):
        return node.value, "+="
    if isinstance(node, ast.Assign) and any(isinstance(target, ast.Subscript) for target in node.targets):
        return node.value, "[]="
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        called = node.value.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        return node.value, "join" if name in _JOINS else "="
    if isinstance(node, ast.Assign):
        return node.value, "="
    return None, ""
