"""Batches that get larger as the training goes on, as in a curriculum of longer and longer sequences.

Memory and time that grow with what goes in are no illness.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from holter.record.events.agent import Batch
from holter.units import count

_LARGER = 1.5  # times
_TIMES = 3  # that a batch was larger than all before it: one long sample makes no curriculum


class InputGrowth:
    """The largest batches of one process, in the order in which they came."""

    def __init__(self, batches: Iterable[Batch] = ()) -> None:
        self._largest: list[tuple[int, int]] = []  # step and elements, each larger than the one before
        for batch in batches:
            self.add(batch)

    def add(self, batch: Batch) -> None:
        """Take in a batch whose shape was reported."""
        elements = math.prod(batch.shapes[0][0], start=1) if batch.shapes else 0
        if elements > (self._largest[-1][1] if self._largest else 0):
            self._largest.append((batch.step or 0, elements))

    def since(self, step: float) -> str:
        """Say from what to what the batches have grown since a step; empty where they hardly have."""
        later = [elements for at, elements in self._largest if at > step]
        before = max((elements for at, elements in self._largest if at <= step), default=0)
        if len(later) < _TIMES or not before or later[-1] < _LARGER * before:
            return ""
        return f"from {count(before)} to {count(later[-1])} numbers"
