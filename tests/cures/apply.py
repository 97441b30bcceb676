"""Applies a cure's diff to a script, literally: every line of it has to stand in the script, once and in one piece."""

from __future__ import annotations


def is_diff(how: str) -> bool:
    """Tell a diff from a hint in words or a command."""
    return any(line.startswith(("-", "+")) for line in how.splitlines())


def applied(how: str, script: str) -> str:
    """Give the script with the diff applied; raises ValueError where it does not fit."""
    rows = [(line[:1], line[2:] if line[1:2] == " " else line[1:]) for line in how.splitlines()]
    old = [text for mark, text in rows if mark in "- "]
    lines = script.splitlines()
    found = [at for at in range(len(lines)) if _same(lines[at : at + len(old)], old)]
    if len(found) != 1 or not old:
        raise ValueError(f"the diff stands {len(found)} times in the script:\n{how}")
    begin = found[0]
    shift = _indent(lines[begin]) - _indent(old[0])
    new, at = [], begin
    for mark, text in rows:
        if mark == " ":
            new.append(lines[at])
        elif mark == "+":
            new.append(" " * max(0, _indent(text) + shift) + text.strip())
        at += mark in "- "
    return "\n".join([*lines[:begin], *new, *lines[begin + len(old) :]]) + "\n"


def _same(there: list[str], wanted: list[str]) -> bool:
    return [" ".join(line.split()) for line in there] == [" ".join(line.split()) for line in wanted]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
