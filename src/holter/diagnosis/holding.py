"""What the censuses in the processes say of growth while the run is on: that it has a bound, or that it has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from holter.diagnosis.bounds import kept_within_bounds
from holter.diagnosis.fields import number, rows, text, whole

Source = Callable[[str], Sequence[str]]

_MOST = 0.5  # of the growth of its process: what explains that much speaks for it
_REMEMBERED = 64  # processes


@dataclass(frozen=True)
class _Held:
    """The variable of one process that grew most, and what may still come of it (None: no end is known)."""

    grown: float
    share: float
    to_come: float | None
    tamed: bool


class Holding:
    """Told of each event; remembers of each process the last word only."""

    def __init__(self, source: Source | None = None) -> None:
        self._source = source
        self._held: dict[int, _Held] = {}
        self._tamed: dict[tuple[str, str], bool] = {}

    def follow(self, events: list[dict[str, Any]]) -> None:
        """Take in what the censuses said."""
        for event in events:
            pid = whole(event, "pid")
            if event.get("k") != "held" or pid is None:
                continue
            grown = (number(event, "rss") or 0.0) - (number(event, "rss_before") or 0.0)
            listed = [row for row in rows(event, "list") if number(row, "bytes") and number(row, "length")]
            top = max(listed, key=_growth, default=None)
            if top is None or grown <= 0:
                self._held.pop(pid, None)
                continue
            if len(self._held) >= _REMEMBERED and pid not in self._held:
                self._held.pop(next(iter(self._held)))
            self._held[pid] = _Held(_growth(top), min(1.0, _growth(top) / grown), _to_come(top), self._is_tamed(top))

    def _is_tamed(self, row: dict[str, Any]) -> bool:
        """Tell whether the script takes things out of it again; its text is read once."""
        key = text(row, "file"), text(row, "variable")
        if key not in self._tamed:
            lines = list(self._source(key[0])) if self._source is not None and key[0] else []
            # The same look as at a record: all it asks for is the text and the name.
            script: Any = SimpleNamespace(source=lambda _path: lines)
            holder: Any = SimpleNamespace(file=key[0], variable=key[1])
            self._tamed[key] = bool(lines) and kept_within_bounds(script, holder)
        return self._tamed[key]

    def _speaking(self) -> list[_Held]:
        return [held for held in self._held.values() if held.share >= _MOST]

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


def _growth(row: dict[str, Any]) -> float:
    return (number(row, "bytes") or 0.0) - (number(row, "bytes_before") or 0.0)


def _to_come(row: dict[str, Any]) -> float | None:
    bound, length, held = number(row, "bound"), number(row, "length"), number(row, "bytes")
    if not bound or not length or held is None:
        return None
    return max(0.0, bound - length) * held / length
