"""The line of the user's that fills a holder, looked for under each of its names in each file that was kept."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holter.diagnosis.core.evidence import is_own_class, user_files
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.leak.growing_line import Growing, assigned_line, feeds_back, growing_line
from holter.diagnosis.leak.object_calls import call_on, is_reset, object_names
from holter.diagnosis.leak.retained import Holder
from holter.finding import Culprit
from holter.source.lines import culprit_at

_KEY = re.compile(r"\[(?P<key>'[^']+'|\"[^\"]+\")\]$")
_INNER = ("queue", "_data", "data")  # attributes by which libraries hold what the script put into them


def line_of(record: RecordLike, holder: Holder) -> tuple[Culprit | None, Growing | None]:
    """Give the culprit and the statement on it; for a cache of a function the line of its decorator."""
    own = record.source(holder.file)
    if holder.scope == "cache":
        return (culprit_at(holder.file, own, holder.line, holder.name), None) if holder.file else (None, None)
    key = _KEY.search(holder.name)
    wanted = key["key"].strip("'\"") if key else ""
    function = holder.owner if holder.scope in ("local", "default", "closure") else ""
    owner = holder.owner if holder.scope in ("attribute", "class") else ""
    for name in _names(record, holder):
        for file in dict.fromkeys((holder.file, *user_files(record))):
            lines = record.source(file)
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
    return made_line(record, holder), None


def handed_to(record: RecordLike, holder: Holder) -> tuple[Culprit, str] | None:
    """Give the line that hands things to an object of a library's which keeps them, and the object's name."""
    if is_own_class(record, holder.owner):
        return None  # its own lines say more
    for file in dict.fromkeys((holder.file, *user_files(record))):
        lines = record.source(file)
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
        as_large = one.nodes >= 0.5 * chosen.nodes and one.grown >= 0.5 * chosen.grown
        if one.single and one.graph and as_large and feeds_back(record.source(one.file), one.variable):
            return one
    return chosen


def made_line(record: RecordLike, holder: Holder) -> Culprit | None:
    """Give the line that gives a holder its value in the first place."""
    lines = record.source(holder.file)
    owner = holder.owner if holder.scope in ("attribute", "class") else ""
    line = assigned_line(lines, holder.variable, owner) or assigned_line(lines, holder.variable)
    return culprit_at(holder.file, lines, line) if line else None


def _names(record: RecordLike, holder: Holder) -> list[str]:
    names = [holder.variable, *holder.also]
    path = re.sub(r"\[[^\]]*\]", "", holder.name).split(".")
    inner = () if is_own_class(record, holder.owner) else _INNER
    if holder.variable in inner and len(path) > 1:
        names.insert(0, path[-2])
    return [name for name in dict.fromkeys(names) if name and name not in ("self", *inner)]
