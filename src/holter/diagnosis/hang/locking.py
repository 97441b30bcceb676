"""What a line of the script waits for, and where the script takes, gives or serves the same thing."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holter.source.lines import tree_of

# A waiting call, the kind of thing it waits for, and the calls that would end the wait.
_CALLS = {
    "acquire": ("lock", ("release",)),
    "get": ("queue", ("put", "put_nowait", "append")),
    "put": ("full queue", ("get", "get_nowait", "popleft")),
    "wait": ("event", ("set", "notify", "notify_all", "notifyAll", "wait")),
    "wait_for": ("event", ("set", "notify", "notify_all", "notifyAll")),
    "join": ("join", ("task_done",)),
    "result": ("future", ("set_result", "set_exception")),
    "recv": ("pipe", ("send", "send_bytes")),
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Wanted:
    """What a line waits for: its kind, its name as written, and the calls that would let it go on."""

    kind: str
    name: str
    call: str = ""
    served_by: tuple[str, ...] = ()

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]


def wanted_on(lines: Sequence[str], line: int) -> Wanted | None:
    """Read from a line what it waits for: `with lock:`, `q.get()`, `ready.wait()`, `thread.join()`."""
    tree = tree_of(lines)
    if tree is None:
        return None
    for node in ast.walk(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.context_expr.lineno == line and isinstance(item.context_expr, (ast.Name, ast.Attribute)):
                    return Wanted("lock", ast.unparse(item.context_expr), "with", ("release",))
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _CALLS
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    for node in sorted(found, key=lambda node: (node.end_lineno or 0) - node.lineno):
        assert isinstance(node.func, ast.Attribute)
        if isinstance(node.func.value, (ast.Name, ast.Attribute, ast.Subscript)):
            kind, served_by = _CALLS[node.func.attr]
            return Wanted(kind, ast.unparse(node.func.value), node.func.attr, served_by)
    return None


def held_since(lines: Sequence[str], line: int, name: str) -> int | None:
    """Give the line that took a lock which is still held where a line stands, by its name's last part."""
    tree = tree_of(lines)
    last = name.rpartition(".")[2]
    if tree is None or not last:
        return None
    scope = _scope(tree, line)
    taken: int | None = None
    for node in _within(scope):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            names = [_last(item.context_expr) for item in node.items]
            inside = (
                node.body[0].lineno <= line <= (node.end_lineno or line) or node.lineno < line <= node.body[0].lineno
            )
            if last in names and inside and node.lineno != line:
                taken = max(taken or 0, node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.lineno < line:
            if node.func.attr == "acquire" and _last(node.func.value) == last:
                taken = max(taken or 0, node.lineno)
            elif node.func.attr == "release" and _last(node.func.value) == last and taken and node.lineno > taken:
                taken = None
    return taken


def calls_on(lines: Sequence[str], name: str, calls: Iterable[str]) -> list[tuple[int, str]]:
    """Give the lines that call one of these methods on a thing, with the function they stand in; any thing for ''."""
    tree, wanted = tree_of(lines), frozenset(calls)
    last = name.rpartition(".")[2]
    if tree is None:
        return []
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in wanted:
            continue
        if not last or _last(node.func.value) == last:
            scope = _scope(tree, node.lineno)
            found.append((node.lineno, getattr(scope, "name", "")))
    return sorted(found)


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Subscript):
        return _last(node.value)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _scope(tree: ast.Module, line: int) -> ast.AST:
    """Give the innermost function that a line stands in, else the file."""
    best: ast.AST = tree
    for node in ast.walk(tree):
        around = isinstance(node, _FUNCTIONS) and node.lineno <= line <= (node.end_lineno or node.lineno)
        if around and (best is tree or getattr(node, "lineno", 0) >= getattr(best, "lineno", 0)):
            best = node
    return best


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    """Walk a function's own statements in the order they stand, leaving out those of functions inside it."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        yield node
        yield from _within(node)
