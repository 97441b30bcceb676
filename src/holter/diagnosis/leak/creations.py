"""Models, optimizers and compiled functions that are made again and again, by the line that makes them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.memory import Points
from holter.finding import Culprit
from holter.record.events.agent import Adapter, Made

_KINDS = ("model", "optimizer", "function")
# Compiled forms of a model: the compiler keeps what it has made of each.
_COMPILED = ("TopLevelTracedModule", "RecursiveScriptModule", "OptimizedModule")
_FEWEST = 3


@dataclass(frozen=True)
class Births:
    """What one line made: how many in all, how many were alive at the end, and when they were counted."""

    what: str
    name: str
    culprit: Culprit
    made: int
    alive: int
    counts: tuple[tuple[float, int, int], ...]

    @property
    def kept(self) -> bool:
        """Tell whether they pile up: most of what was made is still there."""
        return self.alive >= _FEWEST and self.alive >= 0.6 * self.made

    @property
    def compiled(self) -> bool:
        return self.name in _COMPILED

    def leaves_traces(self, record: RecordLike) -> bool:
        """Tell whether something of them may stay when they are gone, beside what the script itself holds."""
        graphs = any(event.framework in ("keras", "tensorflow") for event in record.of(Adapter))
        return graphs or self.compiled or self.what == "function"


@once
def births_of(record: RecordLike, pids: tuple[int, ...] = ()) -> tuple[Births, ...]:
    """Give the lines that made at least three of a kind, models first, then by number."""
    sites: dict[tuple[str, str, str, int], list[Made]] = {}
    for event in record.of(Made):
        what, line = event.what, event.line
        if what in _KINDS and line and (not pids or event.pid in pids):
            sites.setdefault((what, event.name, event.file, line), []).append(event)
    found = []
    for (what, name, file, line), events in sites.items():
        made, alive = events[-1].made or 0, events[-1].alive or 0
        if made >= _FEWEST:
            counts = tuple((e.m, e.made or 0, e.alive or 0) for e in events)
            culprit = Culprit(file, line, events[-1].function, events[-1].code.strip())
            found.append(Births(what, name, culprit, made, alive, counts))
    return tuple(sorted(found, key=lambda one: (not one.kept, _KINDS.index(one.what), -one.made)))


def goes_with(births: Births, points: Points) -> float:
    """Give how closely a curve follows the number made, as a correlation; 0 where too little is known."""
    times = [m for m, _ in points]
    pairs = []
    for m, made, _alive in births.counts:
        at = bisect_right(times, m)
        if at:
            pairs.append((float(made), points[at - 1][1]))
    if len(pairs) < 4:
        return 0.0
    mean_x, mean_y = (sum(part) / len(pairs) for part in zip(*pairs, strict=True))
    across = sum((x - mean_x) ** 2 for x, _ in pairs)
    up = sum((y - mean_y) ** 2 for _, y in pairs)
    both = sum((x - mean_x) * (y - mean_y) for x, y in pairs)
    return float(both / (across * up) ** 0.5) if across > 0 and up > 0 else 0.0
