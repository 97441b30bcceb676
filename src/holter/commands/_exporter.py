"""The process that hands one run's numbers and findings on to one tool: reads the record until the run is over."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holter.commands._tell import tell_on_stderr
from holter.diagnosis.core.examined import Examined, examined
from holter.errors import NotInstalled
from holter.figures.document import mask
from holter.figures.gauges import gauges_in, meanings
from holter.figures.now import alarm_of
from holter.record.events.timeline import Processes, Sample
from holter.record.reader import open_record
from holter.record.recent import recent
from holter.recorder.platform import here
from holter.views.export import Exporter, Moment, News, Run, tool

_FIRST_LOOKS_EVERY_S = 1.0  # seconds between two looks until there is a number
_LOOKS_EVERY_S = 5.0  # and from then on


class Export:
    """One tool, one run."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._name = str(order["name"])
        self._folder = Path(order["folder"])
        self._reported: set[str] = set()
        self._alarm = ""
        meta = recent(self._folder).meta
        run = Run(
            id=self._folder.name,
            name=str(mask(meta.get("name") or "")),
            command=tuple(mask(meta.get("command") or ())),
            host=str(meta.get("host") or ""),
            started=float(meta.get("started") or time.time()),
            folder=str(order["cwd"]),
            meanings=meanings(),
            where=str(order["where"]),
            mark=str(order["mark"]),
            listener=int(order["listener"]),
            processes=here("process_look", "recorder.loop"),
        )
        self._exporter: Exporter = tool(self._name).Exporter(run, self.report)

    def report(self, text: str) -> None:
        """Each thing once, and nothing of a command that could not be started: it leaves no record."""
        if text not in self._reported and self._folder.exists():
            self._reported.add(text)
            tell_on_stderr(f"export to {self._name}: {text}")

    def look(self) -> bool:
        """Hand on the present numbers, and what is told of the run; tells whether there were any numbers."""
        table = examined(recent(self._folder))
        moment = moment_of(table)
        self._exporter.numbers(moment)
        alarm = str(mask(alarm_of(table)))
        if alarm and alarm != self._alarm:
            self._exporter.news(News("alarm", moment.t, alarm))
        self._alarm = alarm
        return len(moment.values) > 1

    def finish(self) -> None:
        """The last numbers, the ending and every finding."""
        self.guarded(self.look)
        self.guarded(self._verdict)
        self.guarded(self._exporter.close)

    def _verdict(self) -> None:
        for item in news_of(self._folder):
            self._exporter.news(item)

    def guarded(self, act: Any) -> Any:
        """What fails is told once for each kind of failure, and tried again the next time."""
        try:
            return act()
        except Exception as error:
            words = str(error).strip().splitlines() or [""]
            self.report(f"{type(error).__name__}: {words[0][:200]}")
        return None


def moment_of(table: Examined) -> Moment:
    """The last reading of each curve, with its time, its step and the processes that were there."""
    values = gauges_in(table)
    last = max((sample.t for sample in table.of(Sample)[-1:]), default=0.0)
    pids = {row.pid for _, reading in table.readings(Processes) for row in reading.rows if row.pid is not None}
    step = int(values["step"]) if "step" in values else None
    return Moment(last or time.time(), step, values, sorted(pids))


def news_of(folder: Path) -> Iterator[News]:
    """How a run ended and why, in the verdict's own words."""
    from holter.diagnosis.core.doctor import verdict

    record = open_record(folder)
    found = verdict(record)
    ended = found.run.get("ended") or time.time()
    ending = {"kind": found.ending.kind, "exit_code": found.ending.exit_code, "signal": found.ending.signal}
    yield News("ending", ended, mask(found.ending.claim), {**ending, "healthy": found.healthy})
    for number, finding in enumerate(found.findings, 1):
        facts: dict[str, Any] = {"cause": finding.cause, "grade": finding.grade, "number": number}
        if finding.culprit is not None:
            facts |= mask(vars(finding.culprit))
        if finding.cures:
            facts["cure"] = mask(finding.cures[0].title)
        yield News("finding", ended, mask(finding.claim), facts)


def main() -> None:
    """The order is a line of JSON on stdin; another line, or the end of it, is the end of the run."""
    heard = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115 - select looks at it, so nothing may be read ahead
    order = json.loads(heard.readline())
    os.chdir(order["cwd"])
    _last_in_line()
    try:
        export = Export(order)
    except NotInstalled as error:
        tell_on_stderr(f"export to {order['name']}: {error}")
        return
    except Exception as error:
        if Path(order["folder"]).exists():  # a command that could not be started leaves no record
            tell_on_stderr(f"export to {order['name']}: {type(error).__name__}: {error}")
        return
    wait = _FIRST_LOOKS_EVERY_S
    while not select.select([heard], [], [], wait)[0]:
        wait = _LOOKS_EVERY_S if export.guarded(export.look) else _FIRST_LOOKS_EVERY_S
    export.finish()


def _last_in_line() -> None:
    """The training goes first: for the processors, and for memory when there is too little for both."""
    try:
        os.nice(5)
        Path("/proc/self/oom_score_adj").write_text("500")
    except OSError:
        pass


if __name__ == "__main__":
    main()
