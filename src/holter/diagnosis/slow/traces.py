"""What was traced or compiled, by the line that defines it, and how the number of traces grew with the steps."""

from __future__ import annotations

from dataclasses import dataclass

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import culprit_on
from holter.diagnosis.core.rule import RecordLike
from holter.finding import Culprit
from holter.record.events.looks import Trace, TraceChange

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
    owners: int  # models that they belong to
    seconds: float
    limit: int
    graph: int  # operations of the last one traced
    products: int  # of them, matrix products and convolutions, counted in a large graph
    variables: int
    changes: tuple[Change, ...]
    call: Culprit | None
    maker: Culprit | None
    use: Culprit | None
    history: tuple[tuple[float, int, int, float], ...]  # moment, step, count, seconds
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
        return max((count for at, _, count, _ in self.history if at <= m), default=0)


@once
def traced_in(record: RecordLike) -> tuple[Traced, ...]:
    """Gather the `trace` events by function; the last of each says how it stands."""
    events: dict[tuple[object, ...], list[Trace]] = {}
    for event in record.of(Trace):
        key = (event.pid, event.what, event.name, event.file, event.line)
        events.setdefault((*key, bool(event.jit)), []).append(event)
    return tuple(_traced(found) for found in events.values())


def _traced(found: list[Trace]) -> Traced:
    last = found[-1]
    line = last.def_line or last.line or 0
    return Traced(
        pid=last.pid,
        what=last.what or "tf.function",
        name=last.name,
        defined=Culprit(last.file, line, last.function, last.code),
        count=last.count or 0,
        functions=last.functions or 0,
        owners=last.owners or 0,
        seconds=last.seconds or 0.0,
        limit=last.limit or 0,
        graph=last.graph or 0,
        products=last.products or 0,
        variables=last.variables or 0,
        changes=tuple(_change(row) for row in last.changes),
        call=culprit_on(last.call),
        maker=culprit_on(last.maker),
        use=culprit_on(last.use),
        jit=bool(last.jit),
        usual=last.usual or 0.0,
        draws=bool(last.draws),
        history=tuple((e.m, e.step or 0, e.count or 0, e.seconds or 0.0) for e in found),
    )


def _change(row: TraceChange) -> Change:
    return Change(row.kind, row.argument, row.count or 0, tuple(example[:60] for example in row.examples[:4]))
