"""What healing takes outside of the process: the soft wall, and a line to the user for each act."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from holter.recorder.platform import here

_KEEPS = {"exact": "the result is the same", "equivalent": "the same in expectation", "changed": "the result changes"}
_DECLINED = {
    "backup": "could not write a backup",
    "heal": "not healed",
    "hold-update": "could not skip the bad update",
    "no-workers": "could not go on without data workers",
    "restart": "not started again",
    "resumable": "could not resume",
    "resume": "could not resume",
    "split-batch": "could not split the batch",
}


class Healing:
    """Told of each tick of a run under `--heal`."""

    def __init__(self, report: Callable[[str], None], agent_dir: Path | None) -> None:
        self._report = report
        self._last = ""
        soft_limit = here("soft_limit", "recorder.launch")
        self._soft_limit: Any = soft_limit.SoftLimit(agent_dir) if soft_limit is not None else None

    def look(self, sample: dict[str, Any], events: list[dict[str, Any]]) -> None:
        if self._soft_limit is not None:
            self._soft_limit.look(sample, events)
        self.report_acts(events)

    def report_acts(self, events: list[dict[str, Any]]) -> None:
        """A line for each act; also of those that came in with the end of the run."""
        for event in events:
            if event.get("k") == "intervention":
                because = f": {event['because']}" if event.get("because") else ""
                self._once(f"{event.get('text')} ({_KEEPS.get(event.get('keeps', ''), 'unknown')}{because})")
            elif event.get("k") == "declined":
                act = str(event.get("act"))
                self._once(f"{_DECLINED.get(act, 'could not ' + act)}: {event.get('because')}")

    def _once(self, line: str) -> None:
        """Many fits that go on from the same epoch, one after the other, are one line; the record has all of them."""
        if line != self._last:
            self._last = line
            self._report(line)
