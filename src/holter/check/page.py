"""A rule's page: what its docstring says under each heading."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from holter.check.rule import HEADINGS, Rule

CODE = ("Example", "Instead")


def parts(rule: Rule) -> dict[str, str]:
    """Split a rule's story by its headings; what is above the first is its title."""
    told = re.split(rf"^({'|'.join(HEADINGS)}):", rule.story.strip("\n"), flags=re.M)
    found = {"": told[0].strip()}
    for heading, text in zip(told[1::2], told[2::2], strict=True):
        found[heading] = textwrap.dedent(text.strip("\n")).rstrip() if heading in CODE else " ".join(text.split())
    return found


def lines_of(rule: Rule, width: int) -> Iterator[tuple[str, str]]:
    """Give the page for a terminal: each line, and whether it is a `title`, a `heading` or plain."""
    told = parts(rule)
    yield f"{rule.code} {rule.name}", "title"
    yield from ((line, "") for line in textwrap.wrap(told[""], width))
    for heading in HEADINGS:
        yield "", ""
        yield heading, "heading"
        lines = told[heading].splitlines() if heading in CODE else textwrap.wrap(told[heading], width - 4)
        yield from ((f"    {line}".rstrip(), "") for line in lines)
    yield "", ""
    yield "Cure", "heading"
    for cure in rule.cures:
        yield from ((f"    {line}", "") for line in textwrap.wrap(cure.title, width - 4))
