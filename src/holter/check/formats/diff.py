"""What --fix would change, as a diff."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from holter.check.problem import Checked


def lines_of(found: Checked) -> Iterator[str]:
    """Give a unified diff of each file that would change."""
    for path, before, after, _fixes in found.changes:
        old, new = (text.decode("utf-8", "replace").splitlines() for text in (before, after))
        yield from difflib.unified_diff(old, new, path, path, lineterm="")
