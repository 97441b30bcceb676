"""What was traced or compiled, by the line that defines it, and how the number of traces grew with the steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.fields import moment, number, part, rows, text, whole
from holter.diagnosis.core.rule import RecordLike
from holter.finding import Culprit

KINDS = ("scalar", "shape", "closure")


@dataclass(frozen=True)
class Change:
    """What differed from an earlier trace: an argument, how often, and a few of its values."""

    kind: str
    argument: str
    count: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Traced:
    """One function of a process: the traces so far, with the moments and steps at which they were told."""

    pid: int | None
    what: str
    name: str
    defined: Culprit
    count: int
    functions: int
    seconds: float
    limit: int
    graph: int  # operations of the last one traced
    products: int  # of them, matrix products and convolutions, counted in a large graph
    variables: int
    changes: tuple[Change, ...]
    call: Culprit | None
    maker: Culprit | None
    use: Culprit | None
    told: tuple[tuple[float, int, int, float], ...]  # moment, step, count, seconds
    jit: bool = False  # compilations by XLA, not traces
    usual: float = 0.0  # seconds of a call that meets no new shape; 0 where there was none
    draws: bool = False  # the calls draw their data themselves, and a wait for them counts in

    @property
    def retraces(self) -> int:
        """Count the traces that need not have been: those of which it is known what had changed."""
        return sum(change.count for change in self.changes if change.kind in KINDS)

    @property
    def main(self) -> Change | None:
        """Give the change that caused the most traces."""
        return max((c for c in self.changes if c.kind in KINDS), key=lambda change: change.count, default=None)

    def count_at(self, m: float) -> int:
        """Say how many traces there had been by a moment."""
        return max((count for at, _, count, _ in self.told if at <= m), default=0)


@once
def traced_in(record: RecordLike) -> tuple[Traced, ...]:
    """Gather the `trace` events by function; the last of each says how it stands."""
    events: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for event in record.events_of("trace"):
        key = (whole(event, "pid"), text(event, "what"), text(event, "name"), text(event, "file"), whole(event, "line"))
        events.setdefault((*key, event.get("jit") is True), []).append(event)
    return tuple(_traced(found) for found in events.values())


def _traced(found: list[dict[str, Any]]) -> Traced:
    last = found[-1]
    line = whole(last, "def_line") or whole(last, "line") or 0
    return Traced(
        pid=whole(last, "pid"),
        what=text(last, "what") or "tf.function",
        name=text(last, "name"),
        defined=Culprit(text(last, "file"), line, text(last, "function"), text(last, "code")),
        count=whole(last, "count") or 0,
        functions=whole(last, "functions") or 0,
        seconds=number(last, "seconds") or 0.0,
        limit=whole(last, "limit") or 0,
        graph=whole(last, "graph") or 0,
        products=whole(last, "products") or 0,
        variables=whole(last, "variables") or 0,
        changes=tuple(_change(row) for row in rows(last, "changes")),
        call=_line(last, "call"),
        maker=_line(last, "maker"),
        use=_line(last, "use"),
        jit=last.get("jit") is True,
        usual=number(last, "usual") or 0.0,
        draws=last.get("draws") is True,
        told=tuple(
            (moment(e), whole(e, "step") or 0, whole(e, "count") or 0, number(e, "seconds") or 0.0) for e in found
        ),
    )


def _change(row: dict[str, Any]) -> Change:
    listed = row.get("examples")
    examples = tuple(value[:60] for value in listed if isinstance(value, str)) if isinstance(listed, list) else ()
    return Change(text(row, "kind"), text(row, "argument"), whole(row, "count") or 0, examples[:4])


def _line(event: dict[str, Any], key: str) -> Culprit | None:
    row = part(event, key)
    line = whole(row, "line")
    if not text(row, "file") or not line:
        return None
    return Culprit(text(row, "file"), line, text(row, "function"), text(row, "code"))
