"""For people: the place, the claim, the line, the cure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holter.check.problem import Checked, Problem
from holter.units import count

_KEEPS = {
    "exact": "keeps the result exactly",
    "equivalent": "keeps the result except for rounding or order",
    "changed": "changes the result",
}


_STYLES = {"error": "bad", "warning": "wait", "note": "dim"}

# Gives a text in a style: "bold", "dim", "bad", "wait", or "" for none.
Show = Callable[[str, str], str]


def _plainly(text: str, style: str) -> str:  # noqa: ARG001 - the shape of Show
    return text


def lines_of(found: Checked, show: Show = _plainly) -> Iterator[str]:
    """Give the whole text, line by line."""
    for problem in found.problems:
        yield from _told(problem, show)
        yield ""
    yield _summary(found)


def _told(problem: Problem, show: Show) -> Iterator[str]:
    code = show(problem.code, _STYLES[problem.level])
    yield f"{show(problem.place, 'bold')}: {code} {show(f'{problem.name} ({problem.level})', '')}"
    yield show(f"    {problem.claim}", "")
    yield ""
    yield f"{show(f'    {problem.line:>5} |', 'dim')} {show(problem.source, '')}"
    yield ""
    cure = problem.cures[0]
    fix = "; --fix does it" if problem.fixable else ""
    yield show(f"    Cure: {cure.title} ({_KEEPS[cure.keeps]}{fix})", "")
    for line in cure.how.splitlines():
        yield show(f"        {line}", "")


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
