"""Times of a run in one count: seconds since it began, and the step that was on at each."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from holter.diagnosis.core.examined import Examined
from holter.diagnosis.core.progress import first_line, last_line, lasted, windows_of
from holter.figures.shape import short
from holter.record.events.recorder import Spawned, Started

_MAX_POINTS = 800


@dataclass(frozen=True)
class Clock:
    """Where the run began on both of its clocks, how long it is, and its steps over time."""

    start: float
    wall: float
    length: float
    times: tuple[float, ...] = ()
    steps: tuple[int, ...] = ()

    def of_wall(self, when: float) -> float:
        return when - self.wall

    def step_at(self, time: float) -> int | None:
        """The step that was last done; None before the first and where no steps are known."""
        at = bisect_right(self.times, time)
        return self.steps[at - 1] if at else None

    def as_json(self) -> dict[str, object]:
        every = max(1, -(-len(self.times) // _MAX_POINTS))
        kept = sorted({*range(0, len(self.times), every), *([len(self.times) - 1] if self.times else [])})
        return {
            "start": self.wall,
            "length": short(self.length),
            "times": [round(self.times[at], 2) for at in kept],
            "steps": [self.steps[at] for at in kept],
        }


def clock_of(record: Examined) -> Clock:
    """Read the clock off a record; times are told from the moment the command was started."""
    begun = [event.m for event in (*record.of(Spawned), *record.of(Started))]
    mono = record.facts.mono
    start = min(begun) if begun else mono if mono is not None else first_line(record)
    wall = (record.facts.started or 0.0) + (start - mono if mono is not None else 0.0)
    times: list[float] = []
    steps: list[int] = []
    for line in windows_of(record):
        last = line.last
        if last is not None and (not steps or last > steps[-1]):
            times.append(line.m - start)
            steps.append(last)
    length = max(lasted(record) or 0.0, last_line(record) - start, 0.0)
    return Clock(start, wall, length, tuple(times), tuple(steps))
