"""Writes docs/rules.md from the rules' own docstrings: `make docs`."""

from __future__ import annotations

import re
from pathlib import Path

from holter.diagnosis.core.rule import HEADINGS, Rule, find_rules

PAGE = Path(__file__).with_name("rules.md")

TOP = """# The rules

Made from the rules themselves by `make docs`; do not edit. A rule is a pure function of a record: the same answer
live and years later. Grades: `established` (the kernel, the interpreter or two readings say so), `supported` (the
evidence fits and what it is confused with was ruled out), `hypothesis` (it fits, and more can't be known).
"""


def section(rule: Rule) -> str:
    """One rule: its first line, then a table of its headings."""
    title, _, body = rule.story.strip().partition("\n")
    found = re.split(rf"^({'|'.join(HEADINGS)}): ", body, flags=re.M)[1:]
    sections = dict(zip(found[::2], (" ".join(text.split()) for text in found[1::2]), strict=True))
    rows = "\n".join(f"| {heading} | {sections[heading]} |" for heading in HEADINGS)
    return f"## `{rule.cause}`\n\n{title}\n\n| | |\n|---|---|\n{rows}\n"


def page() -> str:
    return "\n".join([TOP, *(section(rule) for rule in find_rules())])


if __name__ == "__main__":
    PAGE.write_text(page())
