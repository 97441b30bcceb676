"""A recipe's step at any batch size: traced at two or three, drawn at the others."""

from __future__ import annotations

import os
from typing import Any

from .. import mapped_heap
from ..aside import Lost, aside, can_fork
from ..heap_replay import in_the_heap, stays, stretched_by
from ..timeline import Summit, Timeline, between, summit, with_moments, without_spare_moments
from . import unseen
from .allocator_cuda import QUANTUM, reserved
from .fake import Fakes
from .kernels_cuda import Kernels, ask
from .step import Recipe

_FIRST, _SECOND = 4, 7
# A real step has small objects of its own between its tensors; with them the heap has more holes, by this share of the
# holes and of the tensors. Two runs of one training differ by about as much as this is off (make bench-plan).
_MORE_HOLES, _SMALL_THINGS = 1.2, 0.1
_MORE_OF_HOLES, _MORE_OF_HEAP = 0.6, 0.3  # shares that the interval's upper end allows for


class Drawing:
    """One recipe on one kind of device; `here` says whether fake tensors of that device can be had."""

    def __init__(self, torch: Any, recipe: Recipe, kind: str) -> None:
        self.kind = kind
        self.has_holes = kind == "cpu" and not mapped_heap.is_set(os.environ)
        here = kind == "cpu" or (kind == "cuda" and torch.cuda.is_available())
        device = torch.device(kind, 0) if here and kind == "cuda" else torch.device("cpu")
        self.fakes = Fakes(torch, recipe, device, kind, unseen.on_cuda if kind == "cuda" else unseen.on_cpu)
        self.quantum = QUANTUM if kind == "cuda" else 64
        self.traces: dict[int, Timeline] = {}
        self.lines = True  # every block is a line in the batch size
        self.pair: list[int] | None = None
        self.heights: dict[int, int] = {}
        self.holes = 1.0  # share of those that were drawn that a real step has shown
        self.kernels: Kernels | None = None  # what operations were seen to take while they run

    def at(self, rows: int) -> Timeline:
        """The step at a size, with all that is known of it."""
        found = self._drawn(rows)
        kernels = self.kernels
        if kernels is None:
            return found
        return with_moments(found, lambda call: kernels.at(call, rows), lambda call: kernels.program(call, rows))

    def ask_kernels(self, torch: Any, rows: int, device: Any, memory: int) -> None:
        """Run the operations that take something for themselves at this size, each by itself."""
        if self.kernels is not None and self.kernels.takers() and not self.kernels.is_known(rows):
            calls = self.fakes.calls(rows, set(self.kernels.takers()))
            self.kernels.learn(rows, ask(torch, calls, device, memory))

    def _drawn(self, rows: int) -> Timeline:
        if rows in self.traces:
            return self.traces[rows]
        if self.lines:
            if self.pair is None:
                self._begin()
            if self.pair is not None:
                one, two = self.pair
                drawn = between(self.traces[one], self.traces[two], one, two, rows)
                if drawn is not None:
                    return drawn
                self.lines = False
        found = self.traces[rows] = self.fakes.trace(rows)
        return found

    def _begin(self) -> None:
        """Trace two sizes, and a third to see that what is drawn from them is true."""
        one, two, far = _FIRST, _SECOND, 61
        for _ in range(2):  # what is made at the first use of a kernel is in the first trace only
            self.traces = {rows: self.fakes.trace(rows) for rows in (one, two)}
            if between(self.traces[one], self.traces[two], one, two, far) is not None:
                break
        drawn = between(self.traces[one], self.traces[two], one, two, far)
        true = self.traces[far] = self.fakes.trace(far)
        if drawn is None or abs(summit(drawn).total - summit(true).total) > 0.002 * summit(true).total:
            self.lines = False
        else:
            self.pair = [one, two]

    def summit(self, rows: int) -> Summit:
        return summit(self.at(rows), self.quantum)

    def least(self, rows: int) -> int:
        """The peak where kernels of a GPU that can do with less memory do so."""
        if self.kind != "cuda":
            return self.summit(rows).total
        return summit(without_spare_moments(self.at(rows)), self.quantum).total

    def height(self, rows: int) -> int:
        """The peak as it would be counted: of tensors on a GPU, with the heap's holes on a CPU."""
        if not self.has_holes:
            return self.summit(rows).total
        if rows not in self.heights:
            self.heights[rows] = self._stretched(rows)
        plain = self.summit(rows).total
        return plain + int(self.holes * max(0, self.heights[rows] - plain))

    def learn_holes(self, rows: int, off: int) -> None:
        """A real step of this size has held less than was drawn, by so much."""
        drawn = self.height(rows) - self.summit(rows).total
        self.holes = max(0.0, 1.0 + off / drawn) if drawn > 0 else 1.0

    def _stretched(self, rows: int) -> int:
        plain = self.summit(rows).total
        if not can_fork():
            return plain
        try:
            found = aside(lambda: stretched_by(self.fakes, rows))
        except Lost:
            found = None
        return plain + int(_MORE_HOLES * max(0, found - plain) + _SMALL_THINGS * plain) if found else plain

    def doubt(self, rows: int) -> float:
        """What the heap's holes may take beyond what was drawn: they differ from run to run."""
        if not self.has_holes:
            return 0.0
        holes = max(0, self.height(rows) - self.summit(rows).total)
        return max(_MORE_OF_HOLES * holes, _MORE_OF_HEAP * in_the_heap(self.at(rows)))

    def reserved(self, rows: int, limit: int | None = None, roomy: bool = False, blas: int = 0) -> int | None:
        """What the GPU's allocator takes; None where it runs out below the limit (`roomy`: nothing takes less)."""
        return reserved(self.at(rows), limit, roomy=roomy, blas=blas)

    def may_do_with_less(self) -> bool:
        """Tell whether some kernels of a GPU take memory that they can do without."""
        return self.kind == "cuda" and self.least(_SECOND) < self.summit(_SECOND).total

    def stays(self) -> int:
        return stays(self.at(_FIRST))
