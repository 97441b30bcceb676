"""Pages that forked data workers copy: their own memory grows though nothing in them gets larger."""

from __future__ import annotations

from dataclasses import dataclass

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.leak.leaking import Leak
from holter.diagnosis.leak.retained import Holder, holder_of
from holter.record.events.looks import RetainedObjects

_PYTHON = ("object", "text", "number")
_LEAST = 16e6


@dataclass(frozen=True)
class WorkerPages:
    """Workers whose private memory grew while their size stood still, and the Python objects they most likely touch."""

    workers: int
    grown: float
    share: float
    objects: Holder | None


@once
def copied_pages(record: RecordLike, leak: Leak) -> WorkerPages | None:
    """Add up what the workers' private memory grew by without their size; None where that is not the growth."""
    first: dict[int, RetainedObjects] = {}
    last: dict[int, RetainedObjects] = {}
    for event in record.of(RetainedObjects):
        pid = event.pid
        if pid is not None and event.role == "worker" and event.private is not None:
            first.setdefault(pid, event)
            last[pid] = event
    copied: dict[int, float] = {}
    for pid, event in last.items():
        private = (event.private or 0.0) - (event.private_before or 0.0)
        resident = (event.rss or 0.0) - (first[pid].rss_before or 0.0)
        if private >= _LEAST and resident < 0.5 * private:
            copied[pid] = private
    grown = sum(copied.values())
    if not copied or grown < 0.3 * leak.rise:
        return None
    return WorkerPages(len(copied), grown, min(1.0, grown / leak.rise), _objects([first[pid] for pid in copied]))


def _objects(events: list[RetainedObjects]) -> Holder | None:
    """The largest container of plain Python objects: each look at one writes to its page."""
    found = [holder for event in events for row in event.rows if (holder := holder_of(event, row)) is not None]
    plain = [one for one in found if one.kind in _PYTHON and one.length >= 1000 and one.file]
    return max(plain, key=lambda one: one.held, default=None)
