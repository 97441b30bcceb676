"""What the censuses in the processes say of growth while the run is on: that it has a bound, or that it has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holter.diagnosis.leak.bounds import kept_within_bounds, made_anew
from holter.record.events.agent import EpochBegins
from holter.record.events.looks import RetainedObject, RetainedObjects
from holter.record.events.schema import Line

Source = Callable[[str], Sequence[str]]

_EXPLAINING_SHARE = 0.5  # of the growth of its process: what explains that much speaks for it
_REMEMBERED = 64  # processes
_LASTS = ("global", "attribute", "class", "closure", "default")  # a local variable goes with its function
_KEYED = ("dict", "defaultdict", "OrderedDict", "Counter", "set", "lru_cache")


@dataclass(frozen=True)
class _Held:
    """The variable of one process that grew most, and what may still come of it (None: no end is known)."""

    grown: float
    share: float
    to_come: float | None
    tamed: bool
    lasting: bool  # it outlives an epoch, and a function's end


class Holding:
    """Told of each event; remembers of each process the last word only."""

    def __init__(self, source: Source | None = None) -> None:
        self._source = source
        self._held: dict[int, _Held] = {}
        self._script: dict[tuple[str, str], tuple[bool, bool]] = {}
        self._epochs: dict[int, int] = {}
        self._first: dict[tuple[int, str], tuple[int, float]] = {}

    def follow(self, events: Sequence[Line]) -> None:
        """Take in what the censuses said."""
        for event in events:
            if isinstance(event, EpochBegins) and event.pid is not None:
                self._epochs[event.pid] = self._epochs.get(event.pid, 0) + 1
            if not isinstance(event, RetainedObjects) or event.pid is None:
                continue
            pid = event.pid
            grown = (event.rss or 0.0) - (event.rss_before or 0.0)
            listed = [row for row in event.rows if row.bytes and row.length]
            top = max(listed, key=_growth, default=None)
            if top is None or grown <= 0:
                self._held.pop(pid, None)
                continue
            if len(self._held) >= _REMEMBERED and pid not in self._held:
                self._held.pop(next(iter(self._held)))
            tamed, anew = self._by_script(top)
            # What is looked up by a key may be a cache, which is full when each key has come by once.
            heap = top.scope in _LASTS and top.type not in _KEYED and not anew
            lasting = self._outlived_an_epoch(pid, top) or heap
            share = min(1.0, _growth(top) / grown)
            self._held[pid] = _Held(_growth(top), share, _to_come(top), tamed, lasting)

    def _outlived_an_epoch(self, pid: int, row: RetainedObject) -> bool:
        """Tell whether a variable held more in a later epoch than all that it had in an earlier one."""
        key, epoch, length = (pid, row.name), self._epochs.get(pid, 0), row.length or 0.0
        if len(self._first) < _REMEMBERED:
            self._first.setdefault(key, (epoch, length))
        first = self._first.get(key)
        return first is not None and epoch > first[0] and length > 1.15 * first[1]

    def _by_script(self, row: RetainedObject) -> tuple[bool, bool]:
        """Tell whether the script takes things out of it again, and whether it makes it anew; its text is read once."""
        key = row.file, row.variable
        if key not in self._script:
            lines = list(self._source(key[0])) if self._source is not None and key[0] else []
            self._script[key] = kept_within_bounds(lines, key[1]), made_anew(lines, key[1])
        return self._script[key]

    def _speaking(self) -> list[_Held]:
        return [held for held in self._held.values() if held.share >= _EXPLAINING_SHARE]

    @property
    def to_come(self) -> float | None:
        """Give how much is still to come where all that grows has a bound; None where no bound is known."""
        speaking = self._speaking()
        known = [held.to_come for held in speaking if held.to_come is not None]
        return sum(known) if known and len(known) == len(speaking) else None

    @property
    def tamed(self) -> bool:
        """Tell whether the script keeps what grows within bounds of its own."""
        return any(held.tamed for held in self._speaking())

    @property
    def endless(self) -> bool:
        """Tell whether something that has no bound explains the growth."""
        return any(held.to_come is None and not held.tamed for held in self._speaking())

    @property
    def lasting(self) -> bool:
        """Tell whether that something is also kept beyond an epoch: then the end of one is no end of its growth."""
        return any(held.to_come is None and not held.tamed and held.lasting for held in self._speaking())


def _growth(row: RetainedObject) -> float:
    return (row.bytes or 0.0) - (row.bytes_before or 0.0)


def _to_come(row: RetainedObject) -> float | None:
    bound, length, held = row.bound, row.length, row.bytes
    if not bound or not length or held is None:
        return None
    return max(0.0, bound - length) * held / length
