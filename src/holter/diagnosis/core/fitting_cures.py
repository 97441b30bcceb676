"""Cures as they fit the script: none that it already contains, and no diff of lines that are not in it."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Sequence
from dataclasses import replace

from holter.finding import Cure, Finding
from holter.source.lines import called_name, calls_of
from holter.source.syntax import parse


def fitting_cures(finding: Finding, lines: Sequence[str], words: Sequence[str] = ()) -> Finding:
    """Give a finding with the cures that fit these lines of its culprit's file; all of them where none are known.

    Commands are written with the words of the run's own, ready to be pasted.
    """
    cures = [_to_paste(cure, words) for cure in finding.cures] if words else finding.cures
    fitted = [_fitted(cure, lines) for cure in cures] if lines else cures
    return replace(finding, cures=tuple(cure for cure in fitted if cure is not None))


def _to_paste(cure: Cure, words: Sequence[str]) -> Cure:
    title, how = (text.replace("-- COMMAND", f"-- {shlex.join(words)}") for text in (cure.title, cure.how))
    return replace(cure, title=title, how=how)


def _fitted(cure: Cure, lines: Sequence[str]) -> Cure | None:
    added, removed, kept = (_marked(cure.how, mark) for mark in "+- ")
    if added and not removed and all(_is_there(line, lines) for line in added):
        return None
    written = {_spaced(line) for line in lines}
    if not added and not removed:
        return cure
    if not removed and not kept:
        # Lines to add with no line of the script beside them: an example, for nothing says where they belong.
        return replace(cure, how="\n".join(added))
    if not all(_spaced(line) in written for line in (*removed, *kept)):
        return replace(cure, how="")
    return cure


def _marked(how: str, mark: str) -> list[str]:
    return [line[1:].strip() for line in how.splitlines() if line.startswith(mark)]


def _is_there(line: str, lines: Sequence[str]) -> bool:
    """Whether a line stands in the script, or, of a plain call, one of the same function."""
    if _spaced(line) in {_spaced(one) for one in lines}:
        return True
    try:
        statement = parse(line).body[0]
    except (SyntaxError, ValueError, IndexError):
        return False
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and bool(calls_of(lines, (called_name(call),)))


def _spaced(line: str) -> str:
    return " ".join(line.split())
