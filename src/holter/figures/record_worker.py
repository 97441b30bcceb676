"""A process that opens records on request and answers in JSON, apart from whoever asks.

A day's record takes a hundred megabytes to read, and Python gives little of that back; here it goes with the process.
One request is a line of JSON on stdin, one answer a line on stdout. It ends when stdin does.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holter.diagnosis.core.doctor import verdict
from holter.diagnosis.core.examined import Examined
from holter.diagnosis.ending.ending import ending_of
from holter.errors import HolterError
from holter.figures.charts import charts_json, charts_of
from holter.figures.clock import Clock, clock_of
from holter.figures.document import words_of
from holter.figures.rows import full_row
from holter.figures.shape import Chart
from holter.figures.summary import summary_of
from holter.finding import Verdict
from holter.record.follow import Follower
from holter.record.labels import read_labels
from holter.record.reader import Record, open_record
from holter.record.recent import recent
from holter.units import duration

_OPEN = 2  # runs whose curves are kept: one that is looked at, and one that it is compared with
_COLLECT = 60  # answers
_MAX_LINES = 4000  # lines of a record that leave the process too large to stay
_VERDICT_SHARE = 0.1  # of the time may go into verdicts on a run that is on


class OpenRun:
    """A run that is open: its curves at once, its verdict when it is asked for; a run that is on is read on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._follower: Follower | None = None
        self._verdict: Verdict | None = None
        self._next_verdict = 0.0
        if recent(folder).live:
            self._follower = Follower(folder)
        self._take(self._follower.record if self._follower is not None else open_record(folder))

    def refresh(self) -> None:
        """Read on where the run is on; a run that has ended meanwhile is opened once more, as a whole."""
        if self._follower is None:
            return
        changed = self._follower.refresh()
        if not self._follower.record.live:
            self._follower = self._verdict = None
            self._take(open_record(self.folder))
        elif changed:
            self._take(self._follower.record)

    def _take(self, record: Record) -> None:
        # What was made of the record before goes first: both together would be the most this process ever holds.
        self._words: dict[str, Any] | None = None
        self.charts: list[Chart] = []
        self._table = Examined(record)
        self.clock: Clock = clock_of(self._table)
        self.charts = charts_of(self._table, ending_of(self._table), self.clock)

    def words(self) -> dict[str, Any]:
        """All but the curves; of a run that is on, the verdict may be some seconds old where it takes long."""
        if self._words is None:
            begun = time.monotonic()
            if self._verdict is None or begun >= self._next_verdict:
                self._verdict = verdict(self._table)
                self._next_verdict = begun + (time.monotonic() - begun) / _VERDICT_SHARE
            self._words = words_of(self._table, self._verdict, self.clock)
            # A record that was copied from elsewhere is known here by its folder.
            self._words["run"]["id"] = self.folder.name
        # What people write on a run changes nothing of the record: it is read each time.
        labels = read_labels(self.folder)
        self._words["run"] |= {"tags": list(labels.tags), "note": labels.note}
        return self._words


class RecordWorker:
    """Answers requests, and keeps the last runs open."""

    def __init__(self) -> None:
        self._open: dict[Path, OpenRun] = {}
        self.full = False
        self._do: dict[str, Callable[[dict[str, Any]], Any]] = {
            "row": self._row,
            "run": self._run,
            "words": self._words,
            "charts": self._charts,
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        begun = time.process_time()
        try:
            found = {"found": self._do[str(request.get("do"))](request)}
        except HolterError as error:
            found = {"error": str(error)}
        except Exception as error:
            # One record that can't be shown must not take the others with it.
            found = {"error": f"it could not be shown: {type(error).__name__}: {error}"}
        return {**found, "took": time.process_time() - begun}

    def _row(self, request: dict[str, Any]) -> dict[str, Any]:
        folder = Path(request["folder"])
        record = Examined(open_record(folder))
        judged = verdict(record)
        took = summary_of(record, judged).lasted
        self.full = not self._open and len(record.timeline) > _MAX_LINES
        return full_row(folder, record, judged, duration(took) if took is not None else "")

    def _run(self, request: dict[str, Any]) -> dict[str, Any]:
        run = self._opened(Path(request["folder"]))
        return {**run.words(), "charts": charts_json(run.charts, _columns(request), None, None)}

    def _words(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._opened(Path(request["folder"]), fresh=False).words()

    def _charts(self, request: dict[str, Any]) -> dict[str, Any]:
        run = self._opened(Path(request["folder"]), fresh=False)
        wanted = [chart for chart in run.charts if request.get("chart") in (None, chart.key)]
        charts = charts_json(wanted, _columns(request), request.get("begin"), request.get("end"))
        return {"clock": run.clock.as_json(), "charts": charts}

    def _opened(self, folder: Path, *, fresh: bool = True) -> OpenRun:
        run = self._open.pop(folder, None)
        if run is None:
            while len(self._open) >= _OPEN:
                del self._open[next(iter(self._open))]
            run = OpenRun(folder)
        elif fresh:
            run.refresh()
        self._open[folder] = run
        return run


def _columns(request: dict[str, Any]) -> int:
    # One chart may be asked for as finely as it was recorded, to be saved as numbers.
    return max(50, min(100_000 if request.get("chart") else 2000, int(request.get("columns") or 600)))


def main() -> None:
    """Serve requests until there are no more."""
    try:
        os.nice(5)  # the runs that are on go first
    except OSError:
        pass
    gc.disable()  # a record is a million objects and no cycles: looking for them is a fifth of the time
    worker = RecordWorker()
    for number, line in enumerate(sys.stdin.buffer):
        answer = worker.answer(json.loads(line))
        text = json.dumps(answer, separators=(",", ":"), default=str)
        sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\n")
        sys.stdout.buffer.flush()
        if worker.full:
            return  # whoever asks next starts a worker with nothing on it
        if number % _COLLECT == _COLLECT - 1:
            gc.collect()  # of what is made anew with each look at a run that is on, for days


if __name__ == "__main__":
    main()
