"""For GitHub's workflows: one annotation a finding."""

from __future__ import annotations

from collections.abc import Iterator

from holter.check.problem import Checked

_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}


def lines_of(found: Checked) -> Iterator[str]:
    """Give one workflow command for each finding and for each file that could not be read."""
    for problem in found.problems:
        where = f"file={prop(problem.file)},line={problem.line},col={problem.column},endLine={problem.end_line}"
        title = prop(f"{problem.code} {problem.name}")
        cell = f"cell {problem.cell}: " if problem.cell is not None else ""
        words = f"{cell}{problem.claim}. Cure: {problem.cures[0].title}"
        yield f"::{_LEVELS[problem.level]} {where},title={title}::{data(words)}"
    for unread in found.unread:
        yield f"::warning file={prop(unread.file)}::{data(unread.why)}"


def data(text: str) -> str:
    """The words of an annotation, on one line."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def prop(text: str) -> str:
    """A value before the words: its own signs are taken out as well."""
    return data(text).replace(":", "%3A").replace(",", "%2C")
