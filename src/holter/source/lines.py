"""A light look at the user's source: where a name grows, where a function is called, which loop a line stands in.

Works on the lines that the record kept; a file that is not there, or is no Python, has nothing to say.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeGuard

from holter.finding import Culprit
from holter.source.syntax import parse

_GROWS = frozenset(
    ("append", "extend", "add", "insert", "appendleft", "update", "setdefault", "put", "put_nowait", "push")
)
_JOINS = frozenset(("cat", "concat", "concatenate", "append", "vstack", "hstack", "stack", "list"))
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@lru_cache(maxsize=16)
def _parsed(text: str) -> ast.Module | None:
    try:
        return parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def tree_of(lines: Sequence[str]) -> ast.Module | None:
    """Give the syntax tree of a file, or None for what does not parse."""
    return _parsed("\n".join(lines)) if lines else None


def culprit_at(file: str, lines: Sequence[str], line: int, function: str = "") -> Culprit:
    """Make a culprit of a line, with the code that stands on it."""
    code = lines[line - 1].strip()[:200] if 0 < line <= len(lines) else ""
    return Culprit(file, line, function or function_around(lines, line), code)


def appends_to(lines: Sequence[str], name: str) -> list[int]:
    """Give the lines that make a name grow: `name.append(...)`, `name[k] = ...`, `name += ...`, `name = cat([name])`.

    A dotted name counts by its last part, so that `self.history` is found under whatever the object is called.
    """
    tree = tree_of(lines)
    last = name.rpartition(".")[2]
    if tree is None or not last:
        return []
    found = {node.lineno for node in ast.walk(tree) if isinstance(node, (ast.stmt, ast.expr)) and _grows(node, last)}
    return sorted(found)


def _grows(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _GROWS and is_named(_base(node.func.value), name)
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add) and is_named(_base(node.target), name)
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and is_named(_base(target), name):
                return True
            if is_named(target, name) and _from_itself(node.value, name):
                return True
    return False


def _from_itself(value: ast.expr, name: str) -> bool:
    """`x = x + [...]`, `x = torch.cat([x, ...])`: the old value goes into the new one."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return any(is_named(part, name) for part in ast.walk(value))
    if isinstance(value, ast.Call):
        return called_name(value) in _JOINS and any(is_named(part, name) for part in ast.walk(value))
    return False


def _base(node: ast.AST) -> ast.AST:
    """`cache[key][0]` grows `cache`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def is_named(node: ast.AST, name: str) -> TypeGuard[ast.Name | ast.Attribute]:
    """Tell whether this is a variable of that name, or an attribute of it, whosever it is."""
    if isinstance(node, ast.Name):
        return node.id == name
    return isinstance(node, ast.Attribute) and node.attr == name


def called_name(node: ast.Call) -> str:
    """Give the name of the function or method that a call calls, without what it belongs to."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def calls_of(lines: Sequence[str], names: Iterable[str]) -> list[tuple[int, str]]:
    """Give the line and the name of each call of one of these functions or methods, such as `log` or `half`."""
    tree, wanted = tree_of(lines), frozenset(names)
    if tree is None:
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = called_name(node)
            if called in wanted:
                # The name itself may stand lines below the start of a chain of calls.
                found.append((getattr(node.func, "end_lineno", None) or node.lineno, called))
    return sorted(found)


def loop_around(lines: Sequence[str], line: int) -> int | None:
    """Give the line of the innermost loop that a line stands in, within its own function."""
    tree = tree_of(lines)
    if tree is None:
        return None
    scopes = (*_LOOPS, ast.FunctionDef, ast.AsyncFunctionDef)
    around = [node for node in _around(tree, line) if isinstance(node, scopes) and node.lineno != line]
    return around[-1].lineno if around and isinstance(around[-1], _LOOPS) else None


def endless_around(lines: Sequence[str], line: int) -> int | None:
    """Give the line of the innermost `while` around a line, in its own function, that hands out nothing meanwhile."""
    tree, found = tree_of(lines), None
    for node in _around(tree, line) if tree is not None else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found = None
        elif isinstance(node, ast.While) and line > node.lineno:
            gives = any(isinstance(one, (ast.Yield, ast.YieldFrom, ast.Await)) for one in ast.walk(node))
            found = None if gives else node.lineno
        elif isinstance(node, ast.While):
            found = node.lineno  # its condition is being looked at
    return found


def loops_in(lines: Sequence[str], names: Iterable[str]) -> list[int]:
    """Give the lines of the loops that stand in functions of these names."""
    tree, wanted = tree_of(lines), frozenset(names)
    if tree is None:
        return []
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    inside = [node for node in ast.walk(tree) if isinstance(node, functions) and node.name in wanted]
    return sorted({node.lineno for one in inside for node in ast.walk(one) if isinstance(node, _LOOPS)})


def function_around(lines: Sequence[str], line: int) -> str:
    """Give the name of the function that a line stands in; empty at the top of a file."""
    tree = tree_of(lines)
    names = [
        node.name for node in _around(tree, line) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ] if tree is not None else []  # fmt: skip
    return names[-1] if names else ""


def _around(tree: ast.AST, line: int) -> Iterator[ast.stmt]:
    """Statements that hold a line, from the outside in."""
    for node in ast.iter_child_nodes(tree):
        if getattr(node, "lineno", 0) <= line <= (getattr(node, "end_lineno", None) or 0):
            if isinstance(node, ast.stmt):
                yield node
            yield from _around(node, line)


def settings_of(lines: Sequence[str], ending: str) -> list[tuple[int, str]]:
    """Give the line and name of each keyword argument or variable whose name ends so, such as `batch_size`."""
    tree = tree_of(lines)
    if tree is None:
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg is not None and node.arg.endswith(ending):
            found.append((node.value.lineno, node.arg))
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            found += [(node.lineno, name) for name in names if name.lower().endswith(ending)]
    return sorted(found)


def handler_around(lines: Sequence[str], line: int, *, silent: bool = False) -> int | None:
    """Give the line of the innermost `except` that catches what a line raises, and does not raise it again.

    With `silent` it catches any error, not one kind that may be meant, comes first, and says nothing of it.
    """
    tree = tree_of(lines)
    if tree is None:
        return None
    for node in reversed([node for node in _around(tree, line) if isinstance(node, ast.Try)]):
        guarded = node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)
        quiet = [handler for handler in node.handlers if not any(isinstance(x, ast.Raise) for x in ast.walk(handler))]
        if silent:
            quiet = [one for one in quiet if one is node.handlers[0] and _catches_all(one) and not _tells(one)]
        if guarded and quiet:
            return quiet[0].lineno
    return None


def silent_handler_at(lines: Sequence[str], line: int) -> int | None:
    """Give the line of the innermost `except` that a line stands in, where it catches any error and says nothing."""
    tree = tree_of(lines)
    tries = [node for node in _around(tree, line) if isinstance(node, ast.Try)] if tree is not None else []
    inside = [one for node in tries for one in node.handlers if one.lineno <= line <= (one.end_lineno or 0)]
    return inside[-1].lineno if inside and _catches_all(inside[-1]) and not _tells(inside[-1]) else None


def silent_end_of_input(lines: Sequence[str], line: int) -> bool:
    """Tell whether an `except` catches any error, says nothing of it, and ends the generator or loop that it met."""
    tree = tree_of(lines)
    around = list(_around(tree, line)) if tree is not None else []
    for node in around[::-1]:
        if isinstance(node, ast.Try):
            handler = next((one for one in node.handlers if one.lineno == line), None)
            return handler is not None and handler is node.handlers[0] and _ends_unseen(handler, node, around)
    return False


def _ends_unseen(handler: ast.ExceptHandler, node: ast.Try, around: list[ast.stmt]) -> bool:
    inside = [one for statement in handler.body for one in ast.walk(statement)]
    uses = any(isinstance(one, ast.Name) and one.id == handler.name for one in inside)
    if uses or not _catches_all(handler) or _tells(handler) or any(isinstance(one, ast.Raise) for one in inside):
        return False
    above = around[: around.index(node)]
    function = next((at for at in range(len(above) - 1, -1, -1) if isinstance(above[at], _FUNCTIONS)), -1)
    looped = any(isinstance(one, _LOOPS) for one in above[function + 1 :])
    return not looped or any(isinstance(one, (ast.Return, ast.Break)) for one in inside)


def _catches_all(handler: ast.ExceptHandler) -> bool:
    caught = handler.type
    parts = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return caught is None or any(isinstance(one, ast.Name) and one.id in _EVERYTHING for one in parts)


def _tells(part: ast.AST) -> bool:
    return any(isinstance(node, ast.Call) and called_name(node) in TELLING for node in ast.walk(part))


_BRANCHES = (ast.If, ast.FunctionDef, ast.AsyncFunctionDef, ast.Try)
_EVERYTHING = ("Exception", "BaseException")
# What people tell themselves with: print and the methods of a logger.
TELLING = ("print", "echo", "write", "log", "info", "warning", "warn", "error", "critical", "exception", "print_exc")


def told_before(lines: Sequence[str], line: int) -> bool:
    """Tell whether a message in words is printed or logged ahead of a line, in the same branch or function."""
    tree = tree_of(lines)
    inside = [node for node in _around(tree, line) if isinstance(node, _BRANCHES)] if tree is not None else []
    if tree is None or not inside or isinstance(inside[-1], ast.Try) or _on_an_error(tree, lines, line):
        return False  # what is said of an error is no plan
    blocks = (inside[-1].body, getattr(inside[-1], "orelse", []))
    block = next((one for one in blocks if one and one[0].lineno <= line <= (one[-1].end_lineno or 0)), [])
    for statement in reversed([one for one in block if (one.end_lineno or 0) < line]):
        nodes = list(ast.walk(statement))
        if any(isinstance(node, _LOOPS) for node in nodes):
            return False  # what was said before the work is no word on why it ends
        if any(isinstance(node, ast.Call) and called_name(node) in TELLING and _in_words(node) for node in nodes):
            return True
    return False


def _on_an_error(tree: ast.AST, lines: Sequence[str], line: int) -> bool:
    """Tell whether a line, or a call of the function that it stands in, stands in an `except`."""
    handlers = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
    name = function_around(lines, line)
    called = [at for at, _ in calls_of(lines, (name,))] if name else []
    return any(one.lineno <= at <= (one.end_lineno or 0) for one in handlers for at in (line, *called))


def _in_words(call: ast.Call) -> bool:
    parts = (part for argument in call.args for part in ast.walk(argument))
    return any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts)


def call_text(lines: Sequence[str], line: int) -> str:
    """Give the whole statement that begins on a line, as written; empty where it is not known."""
    tree = tree_of(lines)
    if tree is None:
        return ""
    inner = [node for node in _around(tree, line) if not hasattr(node, "body")]
    if not inner:
        return ""
    return "\n".join(lines[inner[-1].lineno - 1 : inner[-1].end_lineno]).strip()


def turn_of_loop(lines: Sequence[str], line: int, depth: int = 5) -> int:
    """Give the line in a loop that a line runs for: itself, or the call of its function, or the call of that one's.

    The line itself where no loop of this file leads to it.
    """
    if loop_around(lines, line) is not None or depth == 0:
        return line
    name = function_around(lines, line)
    for call, _ in calls_of(lines, (name,)) if name else ():
        if function_around(lines, call) == name:
            continue
        found = turn_of_loop(lines, call, depth - 1)
        if loop_around(lines, found) is not None:
            return found
    return line


def grown_in(lines: Sequence[str], line: int) -> list[int]:
    """Give the lines below the statement on a line that make something grow: `.append(...)`, `name[key] = ...`."""
    tree = tree_of(lines)
    if tree is None:
        return []
    holders = [node for node in ast.walk(tree) if isinstance(node, _LOOPS) and node.lineno == line]
    nodes = [inner for holder in holders for inner in ast.walk(holder)]
    found = {node.lineno for node in nodes if isinstance(node, ast.Call) and called_name(node) in _GROWS}
    for node in nodes:
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Subscript) for target in node.targets):
            found.add(node.lineno)
    return sorted(found)
