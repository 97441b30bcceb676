"""The line of the user's that fills a holder, looked for under each of its names in each file that was kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

from holter.diagnosis.core.evidence import user_files
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.leak.growing_line import Growing, assigned_line, feeds_back, growing_line
from holter.diagnosis.leak.retained import Holder
from holter.finding import Culprit
from holter.source.lines import culprit_at, tree_of

_KEY = re.compile(r"\[(?P<key>'[^']+'|\"[^\"]+\")\]$")
_INNER = ("queue", "_data", "data")  # attributes by which libraries hold what the script put into them
_PART = re.compile(r"_modules\['(?P<module>\w+)'\]|\.?(?P<name>[A-Za-z]\w*)")
# What is asked of an object, in contrast to what it is handed.
_ASKS = frozenset(("reset", "compute", "to", "eval", "train", "result", "get", "close", "clear", "items", "keys"))
_FILLS = ("update", "append", "add", "push", "put", "log", "record", "update_state", "store", "extend")


def line_of(record: RecordLike, holder: Holder) -> tuple[Culprit | None, Growing | None]:
    """Give the culprit and the statement on it; for a cache of a function the line of its decorator."""
    own = record.source(holder.file) if holder.file else []
    if holder.scope == "cache":
        return (culprit_at(holder.file, own, holder.line, holder.name), None) if holder.file else (None, None)
    key = _KEY.search(holder.name)
    wanted = key["key"].strip("'\"") if key else ""
    function = holder.owner if holder.scope in ("local", "default", "closure") else ""
    owner = holder.owner if holder.scope in ("attribute", "class") else ""
    for name in _names(holder):
        for file in dict.fromkeys((holder.file, *user_files(record))):
            lines = record.source(file) if file else []
            found = growing_line(
                lines, name, function if file == holder.file else "", owner, wanted, top=holder.scope == "global"
            )
            if found is not None:
                return culprit_at(file, lines, found.line), found
    handed = handed_to(record, holder)
    if handed is not None:
        return handed[0], None
    if holder.file and holder.line:
        return culprit_at(holder.file, own, holder.line, holder.owner), None
    line = assigned_line(own, holder.variable, owner) or assigned_line(own, holder.variable)
    return (culprit_at(holder.file, own, line), None) if line else (None, None)


def handed_to(record: RecordLike, holder: Holder) -> tuple[Culprit, str] | None:
    """Give the line that hands things to an object of a library's which keeps them, and the object's name."""
    for file in dict.fromkeys((holder.file, *user_files(record))):
        lines = record.source(file) if file else []
        if any(line.lstrip().startswith(f"class {holder.owner}") for line in lines):
            return None  # the script's own class: its own lines say more
        for name in object_names(holder.name):
            line = call_on(lines, name)
            if line is not None:
                return culprit_at(file, lines, line), "" if is_reset(lines, name) else name
    return None


def fed_back(record: RecordLike, chosen: Holder | None, found: Iterable[Holder]) -> Holder | None:
    """Of several variables on one growing graph, choose the one that is made from itself: the others only follow it."""
    if chosen is None or not (chosen.single and chosen.graph):
        return chosen
    for one in found:
        if one.single and one.graph and one.nodes >= 0.5 * chosen.nodes and one.grown >= 0.5 * chosen.grown:
            lines = record.source(one.file) if one.file else []
            if feeds_back(lines, one.variable):
                return one
    return chosen


def made_line(record: RecordLike, holder: Holder) -> Culprit | None:
    """Give the line that gives a holder its value in the first place."""
    lines = record.source(holder.file) if holder.file else []
    owner = holder.owner if holder.scope in ("attribute", "class") else ""
    line = assigned_line(lines, holder.variable, owner) or assigned_line(lines, holder.variable)
    return culprit_at(holder.file, lines, line) if line else None


def _names(holder: Holder) -> list[str]:
    names = [holder.variable, *holder.also]
    path = re.sub(r"\[[^\]]*\]", "", holder.name).split(".")
    if holder.variable in _INNER and len(path) > 1:
        names.insert(0, path[-2])
    return [name for name in dict.fromkeys(names) if name and name not in ("self", *_INNER)]


def object_names(path: str) -> list[str]:
    """Give the names along a path such as `model._modules['auroc'].target`, without the last, the nearest first."""
    names = [found["module"] or found["name"] for found in _PART.finditer(path)]
    return names[-2::-1]


def call_on(lines: Sequence[str], name: str) -> int | None:
    """Give the first line that hands something to the object of this name.

    An object of a library's (a metric, a logger, a queue) holds what it is handed in attributes of its own, which stand
    nowhere in the script: the line that fills them is the one that calls it.
    """
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
