"""For programs, schema 1."""

from __future__ import annotations

import json
from collections.abc import Iterator

from holter.check.problem import Checked


def lines_of(found: Checked) -> Iterator[str]:
    """Give one JSON document."""
    yield json.dumps(
        {
            "schema": 1,
            "files": found.files,
            "fixed": found.fixed,
            "findings": [problem.as_json() for problem in found.problems],
            "unread": [{"file": unread.file, "why": unread.why} for unread in found.unread],
        },
        indent=2,
    )
