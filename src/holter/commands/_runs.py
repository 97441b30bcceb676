"""The records of this user, as the views that show all of them find them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holter.errors import DamagedRecord, HolterError
from holter.figures.gauges import gauges_of, meanings
from holter.figures.rows import first_row, labels_of, quick_row
from holter.record import place
from holter.record.kept import delete, kept_run, refuse_if_live
from holter.record.labels import FILE, change_labels, noted, tagged
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

    def first_row(self, run: str) -> dict[str, Any]:
        return first_row(self.folder(run))

    def quick_row(self, run: str) -> dict[str, Any]:
        return quick_row(self.folder(run))

    def written(self, run: str) -> tuple[int, ...]:
        return written(self.folder(run))

    def labels(self, run: str) -> dict[str, Any]:
        """What people wrote on a run: its name, its tags, its note."""
        return labels_of(self.folder(run))

    def labelled(self, run: str) -> int:
        """A number that changes whenever somebody writes on the run."""
        try:
            return os.lstat(self.folder(run) / FILE).st_mtime_ns
        except OSError:
            return 0

    def tag(self, run: str, add: Sequence[str], remove: Sequence[str]) -> None:
        change_labels(self.folder(run), lambda labels: tagged(labels, add, remove))

    def note(self, run: str, text: str) -> None:
        change_labels(self.folder(run), lambda labels: noted(labels, text))

    def delete(self, run: str) -> None:
        """As `holter rm` does: neither a run that is on nor another user's."""
        refuse_if_live(kept_run(self.folder(run)))
        try:
            delete(self.folder(run))
        except OSError as error:
            raise HolterError(f"{run} can't be deleted: {error.strerror or error}") from None

    def gauges(self, run: str) -> dict[str, float]:
        try:
            return gauges_of(self.folder(run))
        except DamagedRecord:
            return {}

    def meanings(self) -> dict[str, str]:
        return meanings()
