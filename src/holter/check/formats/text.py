"""For people: the place, the claim, the line, the cure."""

from __future__ import annotations

from collections.abc import Iterator

from holter.check.problem import Checked, Problem
from holter.units import count

_KEEPS = {
    "exact": "keeps the result exactly",
    "equivalent": "keeps the result except for rounding or order",
    "changed": "changes the result",
}


def lines_of(found: Checked) -> Iterator[str]:
    """Give the whole text, line by line."""
    for problem in found.problems:
        yield from _told(problem)
        yield ""
    yield _summary(found)


def _told(problem: Problem) -> Iterator[str]:
    yield f"{problem.place}: {problem.code} {problem.name} ({problem.level})"
    yield f"    {problem.claim}"
    yield ""
    yield f"    {problem.line:>5} | {problem.source}"
    yield ""
    cure = problem.cures[0]
    fix = "; --fix does it" if problem.fixable else ""
    yield f"    Cure: {cure.title} ({_KEEPS[cure.keeps]}{fix})"
    for line in cure.how.splitlines():
        yield f"        {line}"


def _summary(found: Checked) -> str:
    files = f"{count(found.files)} file{'s' * (found.files != 1)}"
    fixed = f"{count(found.fixed)} fixed, " if found.fixed else ""
    if not found.problems:
        return f"{fixed}nothing found in {files}"
    many = len(found.problems)
    fixable = sum(problem.fixable for problem in found.problems)
    hint = f"; --fix repairs {count(fixable)} of them" if fixable else ""
    sick = len({problem.file for problem in found.problems})
    return f"{fixed}{count(many)} finding{'s' * (many != 1)} in {count(sick)} of {files}{hint}"
