"""What a script says about a run of it that died: its known traps, and the places where it may wait or leave early.

Nothing is executed. Whatever is found here is a guess about the run: a hypothesis, never more.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holter.check.engine import check_source
from holter.check.problem import Problem
from holter.check.settings import find_settings
from holter.check.source import CanNotRead, Source, read
from holter.diagnosis.ending.one_shot import as_long_as_its_input, read_once, swallowing_handler
from holter.errors import UsageError
from holter.finding import Culprit
from holter.source.lines import called_name, culprit_at, told_before, tree_of

_COLLECTIVES = frozenset(("all_reduce", "all_gather", "barrier", "broadcast", "reduce_scatter", "all_gather_object"))
_WAITS = frozenset(("get", "join", "acquire", "recv", "recv_bytes", "wait", "result"))
_PIPE_CALLS = frozenset(("read", "readline", "write", "flush"))
_LOCKS = frozenset(("Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition"))
_EXITS = frozenset(("exit", "_exit", "quit"))


@dataclass(frozen=True)
class Script:
    """A script as it lies there now."""

    path: str
    lines: list[str]
    problems: tuple[Problem, ...] = ()
    changed: float = 0.0  # wall-clock seconds
    unread: str = ""
    waits: tuple[Culprit, ...] = field(default=())  # lines that can wait for ever, the likeliest first
    leaves: tuple[tuple[str, str, Culprit], ...] = field(default=())  # cause, why, line: ways to end early with no word


def look_at_script(path: str) -> Script:
    """Read a script, ask `holter check` about it, and look for where it may wait or leave."""
    try:
        source = read(path)
        changed = os.stat(path).st_mtime
    except (OSError, CanNotRead) as error:
        words = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise UsageError(f"{path} can't be read: {words}", "Name the script that was run, or leave it out") from None
    return _look(source, changed)


def _look(source: Source, changed: float) -> Script:
    folder = Path(source.path).absolute().parent
    checked = check_source(source, find_settings(folder))
    lines = source.text.split("\n")
    unread = "; ".join(one.why for one in checked.unread)
    waits = tuple(culprit_at(source.path, lines, line) for line in _waiting_lines(lines))
    return Script(
        source.path, lines, tuple(checked.problems), changed, unread, waits, tuple(_early_ways_out(source.path, lines))
    )


def _waiting_lines(lines: list[str]) -> list[int]:
    """Calls that return only when another process, thread or rank does its part, and loops that ask again and again."""
    tree = tree_of(lines)
    locks = _locks_of(tree) if tree is not None else set()
    found: list[tuple[int, int]] = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.While) and any(
            isinstance(one, ast.Call) and called_name(one) == "sleep" for one in ast.walk(node)
        ):
            found.append((1, node.lineno))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in _COLLECTIVES:
                found.append((0, node.lineno))
            elif name in _WAITS and not _bounded(node):
                found.append((2, node.lineno))
            elif name in _PIPE_CALLS and _is_a_childs_pipe(node.func.value):
                found.append((1, node.lineno))
        elif isinstance(node, ast.With) and any(_last_name(item.context_expr) in locks for item in node.items):
            found.append((3, node.lineno))
    return [line for _, line in sorted(set(found))]


def _locks_of(tree: ast.AST) -> set[str]:
    """Names, and last parts of dotted names, that a lock of some kind is bound to."""
    return {
        _last_name(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and called_name(node.value) in _LOCKS
        for target in node.targets
    } - {""}


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_a_childs_pipe(node: ast.expr) -> bool:
    """`tool.stdin` of a process that was started; not the program's own `sys.stdin`."""
    if not isinstance(node, ast.Attribute) or node.attr not in ("stdin", "stdout"):
        return False
    return not (isinstance(node.value, ast.Name) and node.value.id == "sys")


def _bounded(call: ast.Call) -> bool:
    """`d.get(key)` and `",".join(words)` wait for nothing; a wait with a timeout comes back."""
    return bool(call.args) or any(word.arg in ("timeout", "block") for word in call.keywords)


def _early_ways_out(path: str, lines: list[str]) -> Iterator[tuple[str, str, Culprit]]:
    looks = (
        ("early-stop.input-exhausted", "this input is empty after its first pass", read_once),
        ("early-stop.swallowed-error", "this `except` catches everything and says nothing", swallowing_handler),
        ("early-stop.input-exhausted", "this loop ends with its input, without a word", as_long_as_its_input),
    )
    for cause, why, look in looks:
        line = look(lines)
        if line is not None:
            yield cause, why, culprit_at(path, lines, line)
    tree = tree_of(lines)
    for loop in (node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While))) if tree is not None else ():
        for node in ast.walk(loop):
            if isinstance(node, ast.Call) and called_name(node) in _EXITS and not told_before(lines, node.lineno):
                culprit = culprit_at(path, lines, node.lineno)
                yield "early-stop.exit-called", "this line leaves the program within a loop", culprit
                return
