"""One watcher for all records and all readers: it looks at what has been written, and tells who asked."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from holter.views.web.reading import Reading, Unreadable

Row = dict[str, Any]
_READS_EVERY_S = 1.0
_ROWS_EACH = 3.0  # seconds between two looks at the runs that are on, for the list of all
_SILENT = 6.0  # seconds after which a silent run is looked at anyway: its recorder may have been killed
_COST = 12.0  # a run is shown anew at most once in so many times what that costs


class Runs(Protocol):
    """The records, as far as a list of them goes, and what may be done to them."""

    def ids(self) -> list[str]: ...
    def folder(self, run: str) -> Path: ...
    def first_row(self, run: str) -> Row: ...
    def quick_row(self, run: str) -> Row: ...
    def labels(self, run: str) -> Row: ...
    def labelled(self, run: str) -> int: ...
    def written(self, run: str) -> tuple[int, ...]: ...
    def tag(self, run: str, add: Sequence[str], remove: Sequence[str]) -> None: ...
    def note(self, run: str, text: str) -> None: ...
    def delete(self, run: str) -> None: ...
    def gauges(self, run: str) -> dict[str, float]: ...
    def meanings(self) -> dict[str, str]: ...


def _may_change(row: Row) -> bool:
    """A run that was seen before its first line was written is no record yet; it may become one."""
    return bool(row["kind"] == "unreadable")


class Reader:
    """Someone who looks at a page: at one run, or at the list of all."""

    def __init__(self, run: str | None) -> None:
        self.run = run
        self.news: queue.Queue[tuple[str, str]] = queue.Queue(maxsize=100)

    def send(self, kind: str, text: str) -> None:
        try:
            self.news.put_nowait((kind, text))
        except queue.Full:
            pass  # a reader that does not keep up reads the whole page again when it comes back


class Watcher:
    """The rows of all runs; kept up to date while someone looks, and silent while nobody does."""

    def __init__(self, runs: Runs, reading: Reading, clock: Callable[[], float] = time.monotonic) -> None:
        self._runs, self._reading, self._clock = runs, reading, clock
        self._rows: dict[str, Row] = {}
        self._seen: dict[str, tuple[int, ...]] = {}
        self._checked: dict[str, float] = {}
        self._labelled: dict[str, int] = {}
        self._published: dict[str, tuple[tuple[int, ...], float]] = {}
        self._due: dict[str, float] = {}
        self._readers: set[Reader] = set()
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._wake = threading.Event()
        self._rows_at = float("-inf")
        self._stopped = False

    def start(self) -> None:
        for work in (self._watch, self._study):
            threading.Thread(target=work, daemon=True, name=work.__name__).start()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()

    def rows(self) -> list[Row]:
        """Every run's row, the newest first."""
        self._look_at_rows()
        with self._lock:
            return [self._rows[run] for run in reversed(self._runs.ids()) if run in self._rows]

    def join(self, run: str | None) -> Reader:
        reader = Reader(run)
        with self._lock:
            self._readers.add(reader)
        if run is not None:
            reader.send("changed", run)  # it may have ended between the page and this
        self._wake.set()
        return reader

    def leave(self, reader: Reader) -> None:
        with self._lock:
            self._readers.discard(reader)
            if all(other.run != reader.run for other in self._readers) and reader.run is not None:
                self._published.pop(reader.run, None)

    def shown(self, run: str, took: float) -> None:
        """A run was shown, which cost so much: it is not shown anew before that has paid off."""
        self._due[run] = self._clock() + max(_READS_EVERY_S, _COST * took)

    def _watch(self) -> None:
        while not self._stopped:
            with self._lock:
                runs = {reader.run for reader in self._readers}
            if not runs:
                self._wake.wait(5.0)  # nobody looks: nothing is looked at
                self._wake.clear()
                self._reading.tidy()
                continue
            if None in runs and self._clock() - self._rows_at >= _ROWS_EACH:
                self._look_at_rows()
            for run in runs - {None}:
                self._look_at(str(run))
            self._reading.tidy()
            time.sleep(_READS_EVERY_S)

    def _look_at(self, run: str) -> None:
        now = self._clock()
        if now < self._due.get(run, 0.0):
            return
        written = self._runs.written(run)
        before = self._published.get(run)
        if before is None or before[0] != written or now - before[1] > _SILENT:
            self._published[run] = (written, now)
            self._publish(run, "changed", run)

    def _look_at_rows(self) -> None:
        """New runs, and where those that are on stand; one that has ended is left to the study."""
        with self._looking:
            self._rows_at = self._clock()
            self._look_at_each(self._runs.ids())

    def _look_at_each(self, ids: list[str]) -> None:
        for run in ids:
            known = self._rows.get(run)
            if known is not None and not known["live"] and not _may_change(known):
                self._read_labels(run)
                continue
            if known is None:  # of a thousand runs nearly all have ended: one look at each must do
                self._checked[run], self._labelled[run] = self._rows_at, self._runs.labelled(run)
                self._put(run, self._quick(run, first=True))
                continue
            written = self._runs.written(run)
            silent = written == self._seen.get(run)
            if silent and (not known["live"] or self._rows_at - self._checked[run] < _SILENT):
                continue
            self._seen[run], self._checked[run] = written, self._rows_at
            self._labelled[run] = self._runs.labelled(run)
            self._put(run, self._quick(run, first=False))
        for run in set(self._rows) - set(ids):
            with self._lock:
                self._rows.pop(run, None)
            for kept in (self._seen, self._checked, self._due, self._labelled):
                kept.pop(run, None)
            self._publish(None, "gone", run)

    def _read_labels(self, run: str) -> None:
        """Somebody may write on a run that ended long ago, here or on the command line."""
        labelled = self._runs.labelled(run)
        if labelled == self._labelled.get(run):
            return
        self._labelled[run] = labelled
        found = self._runs.labels(run)
        with self._lock:
            row = self._rows[run] = {**self._rows[run], **found}
        self._publish(None, "row", json.dumps(row))

    def _quick(self, run: str, *, first: bool) -> Row:
        try:
            return self._runs.first_row(run) if first else self._runs.quick_row(run)
        except Exception as error:  # one record that can't be shown must not end the watch over the others
            why = f"it could not be shown: {type(error).__name__}: {error}"
            return {"id": run, "kind": "unreadable", "tone": "bad", "why": why, "live": False, "known": True}

    def _put(self, run: str, row: Row) -> None:
        with self._lock:
            before = self._rows.get(run)
            if before is not None and before["known"] and not before["live"] and not _may_change(before):
                return
            self._rows[run] = row
        if row != before:
            self._publish(None, "row", json.dumps(row))
        self._wake.set()

    def _study(self) -> None:
        """Get the verdict on every run that has ended, the newest first; each is asked for once."""
        while not self._stopped:
            with self._lock:
                waiting = [run for run, row in self._rows.items() if not row["known"] and not row["live"]]
            if not waiting:
                time.sleep(1.0)
                continue
            run = max(waiting, key=lambda name: int(name.rpartition("-")[2]))
            judged: Row
            try:
                judged = json.loads(self._reading.ask(do="row", folder=str(self._runs.folder(run)))[0])
            except Unreadable as error:
                judged = {"kind": "unreadable", "tone": "bad", "why": str(error), "known": True}
            with self._lock:
                before = self._rows.get(run)
                if before is not None:  # it may have been deleted meanwhile
                    row = self._rows[run] = {**before, **judged}
            if before is not None:
                self._publish(None, "row", json.dumps(row))
            time.sleep(0.01)  # a page that is asked for comes between two of these

    def _publish(self, run: str | None, kind: str, text: str) -> None:
        with self._lock:
            readers = [reader for reader in self._readers if reader.run == run]
        for reader in readers:
            reader.send(kind, text)
