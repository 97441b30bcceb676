"""What the script itself says about a variable that grows: that it is a cache, or that it is kept within bounds."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.leak.retained import Holder
from holter.source.lines import is_named, tree_of

_CACHE_NAME = re.compile(r"cache|memo|loaded|lookup|prefetch|preload", re.IGNORECASE)
_TAKES_OUT = frozenset(("pop", "popleft", "popitem", "clear", "remove", "get_nowait", "discard"))
_PUTS_IN = ("append", "add", "appendleft", "insert")
_QUEUES = frozenset(("Queue", "LifoQueue", "PriorityQueue", "SimpleQueue"))


def cache_like(record: RecordLike, holder: Holder) -> bool:
    """Tell a cache from a heap of results: what is kept to be looked up again."""
    if holder.scope == "cache" or (holder.owner in _QUEUES and holder.variable == "queue"):
        return True
    if holder.graph:
        return False
    if _CACHE_NAME.search(holder.variable):
        return True
    if holder.type not in ("dict", "defaultdict", "OrderedDict"):
        return False
    return holder.scope == "default" or _looked_up(record.source(holder.file), holder.variable)


def _looked_up(lines: Sequence[str], name: str) -> bool:
    """`key in memo`, `memo.get(key)`, `memo.setdefault(...)`, or a read of `memo[key]` under `except KeyError`."""
    tree = tree_of(lines)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            if is_named(node.comparators[0], name):
                return True
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("get", "setdefault") and is_named(node.func.value, name):
                return True
        elif isinstance(node, ast.Try) and any("KeyError" in ast.dump(handler) for handler in node.handlers):
            read = [part for part in ast.walk(node) if isinstance(part, ast.Subscript) and is_named(part.value, name)]
            if read:
                return True
    return False


def kept_within_bounds(lines: Sequence[str], name: str) -> bool:
    """Tell whether the script takes things out of a variable again, or asks for its length before it adds more."""
    tree = tree_of(lines)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _TAKES_OUT and is_named(node.func.value, name):
                return True
        elif isinstance(node, ast.Delete):
            if any(isinstance(target, ast.Subscript) and is_named(target.value, name) for target in node.targets):
                return True
        elif isinstance(node, (ast.If, ast.While)):
            if any(_length_of(part, name) for part in ast.walk(node.test)) and _heeds(node, name):
                return True
        elif isinstance(node, ast.Assign):
            cut = isinstance(node.value, ast.Subscript) and is_named(node.value.value, name)
            if cut and any(is_named(target, name) or _slice_of(target, name) for target in node.targets):
                return True
    return False


def made_anew(lines: Sequence[str], name: str) -> bool:
    """Tell whether a variable is given a new container: in a loop, or by a method that is no `__init__`."""
    tree = tree_of(lines)
    if tree is None:
        return False
    loops = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.AsyncFor, ast.While))]
    methods = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name != "__init__"]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not _empty(node.value):
            continue
        names = [part for target in node.targets for part in getattr(target, "elts", [target])]
        attribute = any(isinstance(part, ast.Attribute) and part.attr == name for part in names)
        if attribute and any(_within(node, method) for method in methods):
            return True
        if any(is_named(part, name) for part in names) and any(_within(node, loop) for loop in loops):
            return True
    return False


def _empty(node: ast.expr) -> bool:
    """`[]`, `{}`, `list()`, `defaultdict(list)`, or a tuple of such."""
    if isinstance(node, ast.Tuple):
        return bool(node.elts) and all(_empty(part) for part in node.elts)
    if isinstance(node, ast.List):
        return not node.elts
    if isinstance(node, ast.Dict):
        return not node.keys
    called = node.func if isinstance(node, ast.Call) else None
    named = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
    return named in ("list", "dict", "set", "deque", "defaultdict", "OrderedDict", "Counter")


def _within(node: ast.AST, outer: ast.AST) -> bool:
    line = getattr(node, "lineno", 0)
    return bool(getattr(outer, "lineno", 0) <= line <= (getattr(outer, "end_lineno", 0) or 0))


def _heeds(node: ast.If | ast.While, name: str) -> bool:
    """Tell whether what depends on a length takes out, adds or turns away: a start once there is enough does not."""
    for part in (part for branch in (*node.body, *node.orelse) for part in ast.walk(branch)):
        if isinstance(part, (ast.Return, ast.Break, ast.Continue)):
            return True
        called = part.func if isinstance(part, ast.Call) else None
        if (
            isinstance(called, ast.Attribute)
            and is_named(called.value, name)
            and called.attr in (*_TAKES_OUT, *_PUTS_IN)
        ):
            return True
        if isinstance(part, ast.Assign) and any(_held_by(target, name) for target in part.targets):
            return True
    return False


def _held_by(node: ast.AST, name: str) -> bool:
    return is_named(node, name) or (isinstance(node, ast.Subscript) and is_named(node.value, name))


def _slice_of(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and is_named(node.value, name)


def _length_of(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "len"
        and bool(node.args)
        and is_named(node.args[0], name)
    )
