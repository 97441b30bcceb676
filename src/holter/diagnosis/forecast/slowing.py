"""Steps that get slower and slower, followed window by window."""

from __future__ import annotations

from dataclasses import dataclass

from holter.diagnosis.core.trend import evenly, keeps_on, largest_fall, slope, trend_of
from holter.record.events.timeline import StepWindow

_KEPT = 120
_WINDOWS = 12
_STEPS = 60
_FACTOR = 1.6


@dataclass(frozen=True)
class Slowing:
    """Steps took `before` seconds each at first and take `now`, `factor` times as long, more with every step."""

    since: int
    before: float
    now: float
    factor: float


class StepTimes:
    """The quickest step of each window: what other programs take away only lengthens some steps, not all."""

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []
        self._cpu: list[tuple[float, float]] = []  # seconds of CPU per step
        self._before: tuple[int, float] | None = None

    def add(self, line: StepWindow) -> None:
        """Take in a window of steps."""
        quickest, last, n = line.min, line.last, line.n
        if quickest and last and n and last > 3:
            self._points.append((float(last), quickest))
            if len(self._points) > _KEPT:
                self._points = evenly(self._points, _KEPT // 2)

    def spent(self, step: int, cpu: float | None) -> None:
        """Take in how much CPU the run has used by a step: a step that takes longer for others' sake uses no more."""
        if cpu is None or step <= 3 or (self._before is not None and step <= self._before[0]):
            return
        if self._before is not None and cpu > self._before[1]:
            self._cpu.append((float(step), (cpu - self._before[1]) / (step - self._before[0])))
            if len(self._cpu) > _KEPT:
                self._cpu = evenly(self._cpu, _KEPT // 2)
        self._before = step, cpu

    def _works_more(self, factor: float) -> bool:
        """Tell whether steps also use more CPU than they did, by at least half of what they take longer."""
        known = evenly(self._cpu, 40)
        if len(known) < _WINDOWS:
            return not self._cpu
        third = len(known) // 3
        early, late = (sorted(value for _, value in some)[third // 2] for some in (known[:third], known[-third:]))
        return late / early - 1 >= 0.5 * (factor - 1) if early > 0 else True

    def slowing(self) -> Slowing | None:
        """Say whether steps get steadily slower; None for noise, one change of pace, or what is over."""
        known = evenly(self._points, 40)
        if len(known) < _WINDOWS or known[-1][0] - known[0][0] < _STEPS:
            return None
        found = trend_of(known)
        if not found.grows or found.keeps < 0.6:
            return None
        first, last = (sorted(value for _, value in some) for some in (known[:4], known[-4:]))
        before, now = first[1], last[1]
        rise = now - before
        late = known[2 * len(known) // 3 :]
        # Each third has to add its part: a machine that is busy for a while is no illness of the run's.
        if now < _FACTOR * before or largest_fall(known) > 0.25 * rise or slope(late) <= 0.4 * found.slope:
            return None
        if keeps_on(late) < 0.3 or not self._works_more(now / before):
            return None
        return Slowing(int(max(found.since, known[0][0])), before, now, now / before)
