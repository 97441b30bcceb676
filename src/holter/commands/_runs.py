"""The records of this user, as the views that show all of them find them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holter.errors import DamagedRecord
from holter.figures.gauges import gauges_of, meanings
from holter.figures.rows import quick_row
from holter.record import place
from holter.record.recent import written


class Runs:
    """The records of this user; a run's folder is found by its id alone, and never outside of them."""

    def __init__(self) -> None:
        self._base = place.home()

    def ids(self) -> list[str]:
        # A link could lead anywhere.
        return [run for run in place.run_ids(self._base) if not self.folder(run).is_symlink()]

    def folder(self, run: str) -> Path:
        return place.runs_folder(self._base) / run

    def quick_row(self, run: str) -> dict[str, Any]:
        return quick_row(self.folder(run))

    def written(self, run: str) -> tuple[int, ...]:
        return written(self.folder(run))

    def gauges(self, run: str) -> dict[str, float]:
        try:
            return gauges_of(self.folder(run))
        except DamagedRecord:
            return {}

    def meanings(self) -> dict[str, str]:
        return meanings()
