"""What the screen is drawn from: the list of runs, and one run's document from the record worker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from holter.views.web.reading import Reading, Unreadable

_READS_EVERY_S = 1.0
_SILENT = 6.0  # seconds after which a silent run is looked at anyway: its recorder may have been killed
_COST = 25.0  # a run is shown anew at most once in so many times what that costs


class Rows(Protocol):
    """The rows of all runs, the newest first."""

    def rows(self) -> list[dict[str, Any]]: ...


class Watched:
    """One run: asked for anew when something was written, and seldom enough to cost little."""

    def __init__(self, folder: Path, reading: Reading, written: Callable[[Path], tuple[int, ...]]) -> None:
        self.folder = folder
        self._reading, self._written = reading, written
        self._document: dict[str, Any] | None = None
        self._asked: tuple[object, ...] = ()
        self._seen: tuple[int, ...] | None = None
        self._looked = self._due = 0.0

    def look(self, columns: int, window: tuple[float, float] | None) -> dict[str, Any] | None:
        """The document, with the charts of the window; None where it is the same as before, or not yet due."""
        now = time.monotonic()
        asked = (columns, window)
        moved = asked != self._asked
        ended = self._document is not None and not self._document["run"]["live"]
        written = self._seen if ended else self._written(self.folder)
        if not moved and (ended or now < self._due or (written == self._seen and now - self._looked < _SILENT)):
            return None
        self._seen, self._looked, self._asked = written, now, asked
        found, took = self._document, 0.0
        if found is None or (not ended and now >= self._due):
            text, took = self._reading.ask(do="run", folder=str(self.folder), columns=columns)
            found = json.loads(text)
        if window is not None or moved:
            begin, end = window or (None, None)
            question = {"do": "charts", "folder": str(self.folder), "columns": columns, "begin": begin, "end": end}
            text, more = self._reading.ask(**question)
            found = {**(found or {}), "charts": json.loads(text)["charts"]}
            took += more
        self._document = found
        self._due = max(self._due, now + max(_READS_EVERY_S, _COST * took))
        return found


__all__ = ["Rows", "Unreadable", "Watched"]
