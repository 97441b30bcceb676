"""Careful access to the lines of a record, which may be damaged, foreign or from another version."""

from __future__ import annotations

from typing import Any

# A message in a record can be megabytes long; nothing that is told to a person needs more than this.
LONGEST_TEXT = 4000


def number(line: object, key: str) -> float | None:
    """Give a finite number, or None for what is absent, of another type, NaN or beyond a float."""
    value = line.get(key) if isinstance(line, dict) else None
    # Asked a million times of a day's record: one look at the type, and bounds that NaN is not within.
    if type(value) is float or type(value) is int:
        return float(value) if -1e18 < value < 1e18 else None
    return None


def whole(line: object, key: str) -> int | None:
    """Give a whole number, or None."""
    found = number(line, key)
    return None if found is None else int(found)


def text(line: object, key: str) -> str:
    """Give a text, or the empty one; numbers and lists are not turned into words."""
    value = line.get(key) if isinstance(line, dict) else None
    return value[:LONGEST_TEXT] if isinstance(value, str) else ""


def flag(line: object, key: str) -> bool | None:
    """Give a truth value, or None where it is not known."""
    value = line.get(key) if isinstance(line, dict) else None
    return value if isinstance(value, bool) else None


def rows(line: object, key: str) -> list[dict[str, Any]]:
    """Give the objects of a list, leaving out whatever is not an object."""
    value = line.get(key) if isinstance(line, dict) else None
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def part(line: object, key: str) -> dict[str, Any]:
    """Give an object inside an object, or an empty one."""
    value = line.get(key) if isinstance(line, dict) else None
    return value if isinstance(value, dict) else {}


def moment(line: object) -> float:
    """Give a line's monotonic time; a line without one counts as the beginning."""
    return number(line, "m") or 0.0
