"""Keeps the user's source files that events point to, so that a record can show and read the lines it speaks of.

Taken when a file is first named, near the start of most runs: a script that is edited meanwhile is kept as it ran.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from typing import Any

from holter.record.privacy import mask_source

_LARGEST = 256 << 10
_MAX_FILES = 40


class Sources:
    """Reads each file at most once; what is no ordinary text file of a sensible size is left out."""

    def __init__(self, keep: Callable[[str, str], None]) -> None:
        self._keep = keep
        self._asked: set[str] = set()
        self._kept = 0

    def notice(self, events: Iterable[dict[str, Any]]) -> None:
        """Keep the user's files that these events name."""
        for event in events:
            for path in _named(event):
                if path not in self._asked and self._kept < _MAX_FILES:
                    self._asked.add(path)
                    self._take(path)

    def _take(self, path: str) -> None:
        text = read_source(path)
        if text is not None:
            self._kept += 1
            self._keep(path, "\n".join(mask_source(line) for line in text.split("\n")))


def read_source(path: str) -> str | None:
    """Give the text of a file of the user's; None for what is gone, no ordinary file, or too large for a script."""
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _LARGEST:
            return None
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_LARGEST)
    except (OSError, ValueError):
        return None


def _named(event: dict[str, Any]) -> Iterable[str]:
    path = event.get("file")
    if isinstance(path, str) and os.path.isabs(path):
        yield path
    frames = _rows(event.get("frames"))
    for row in (*_rows(event.get("threads")), *_rows(event.get("chain"))):
        frames += _rows(row.get("frames"))
    for row in (*frames, *_rows(event.get("list"))):
        # A frame says whether it is the user's; what else names a file names one of the user's.
        if row.get("user", True) and os.path.isabs(str(row.get("file") or "")):
            yield str(row["file"])


def _rows(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
