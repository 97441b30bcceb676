"""For GitHub's workflows: one annotation a finding."""

from __future__ import annotations

from collections.abc import Iterator

from holter.check.problem import Checked

_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}


def lines_of(found: Checked) -> Iterator[str]:
    """Give one workflow command for each finding and for each file that could not be read."""
    for problem in found.problems:
        where = f"file={_property(problem.file)},line={problem.line},col={problem.column},endLine={problem.end_line}"
        title = _property(f"{problem.code} {problem.name}")
        cell = f"cell {problem.cell}: " if problem.cell is not None else ""
        words = f"{cell}{problem.claim}. Cure: {problem.cures[0].title}"
        yield f"::{_LEVELS[problem.level]} {where},title={title}::{_data(words)}"
    for unread in found.unread:
        yield f"::warning file={_property(unread.file)}::{_data(unread.why)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
