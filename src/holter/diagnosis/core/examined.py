"""A record on the examination table: indexed once, with every reading taken at most once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from holter.diagnosis.core.rule import RecordLike
from holter.record.events.run import RunFacts
from holter.record.events.schema import Line, Reading, number

P = ParamSpec("P")
T = TypeVar("T")
L = TypeVar("L", bound=Line)
R = TypeVar("R", bound=Reading)


class Examined:
    """Gives the same answers as the record it wraps, quickly, and leaves out what is no line at all."""

    def __init__(self, record: RecordLike) -> None:
        self.meta = record.meta if isinstance(record.meta, dict) else {}
        self.facts = RunFacts.parse(self.meta)
        self.events = _lines(record.events)
        self.timeline = _lines(record.timeline)
        self.output = record.output if isinstance(record.output, str) else ""
        self.live = record.live
        self.recorder_lost = record.recorder_lost
        self.damage = record.damage
        self.source = record.source
        self.memo: dict[object, Any] = {}
        self._events = _by_kind(self.events)
        self._lines = _by_kind(self.timeline)
        self._typed: dict[type, list[Any]] = {}

    def of(self, kind: type[L]) -> list[L]:
        if kind not in self._typed:
            found = (*self._events.get(kind.KIND, ()), *self._lines.get(kind.KIND, ()))
            self._typed[kind] = [kind.parse(line) for line in found]
        return self._typed[kind]

    def readings(self, probe: type[R]) -> list[tuple[float, R]]:
        if probe not in self._typed:
            found = [line for line in self._lines.get("sample", ()) if isinstance(line.get(probe.PROBE), dict)]
            self._typed[probe] = [(number(line.get("m")) or 0.0, probe.parse(line[probe.PROBE])) for line in found]
        return self._typed[probe]


def examined(record: RecordLike) -> Examined:
    """Lay a record on the table, unless it lies there already."""
    return record if isinstance(record, Examined) else Examined(record)


def once(read: Callable[Concatenate[RecordLike, P], T]) -> Callable[Concatenate[RecordLike, P], T]:
    """Keep a reading with the record: a week's timeline is walked once for each question, not once for each rule."""

    @wraps(read)
    def kept(record: RecordLike, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not isinstance(record, Examined):
            return read(record, *args, **kwargs)
        key = (read, args, tuple(kwargs.items()))
        if key not in record.memo:
            record.memo[key] = read(record, *args, **kwargs)
        return cast(T, record.memo[key])

    return kept


def _lines(found: Iterable[Any]) -> list[dict[str, Any]]:
    return [line for line in found if isinstance(line, dict)]


def _by_kind(found: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    sorted_out: dict[str, list[dict[str, Any]]] = {}
    for line in found:
        kind = line.get("k")
        if isinstance(kind, str):
            sorted_out.setdefault(kind, []).append(line)
    return sorted_out
