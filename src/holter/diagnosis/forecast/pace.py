"""How the training goes, followed line by line: its steps, epochs, plan and pace. Bounded, for runs of weeks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from holter.record.events.agent import Adapter, EpochBegins, Schedule
from holter.record.events.schema import Line
from holter.record.events.timeline import Sample, StepWindow

_EPOCHS_KEPT = 64
_RECENT = 20.0  # seconds over which the pace is taken


class Pace:
    """Told of each sample and of what the agents said since the last one."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self.turn = 0  # counts the processes that have spoken for the run
        self.step = 0
        self.now = 0.0  # monotonic
        self.wall_clock = 0.0
        self.adapters = False
        self.first_step_at: float | None = None
        self.per_epoch = 0
        self.epochs = 0
        self.begins: list[tuple[int, int]] = []  # (step, number) at which epochs began
        self.passes = 0
        self._planned = 0
        self._plans_done = 0
        self._counts: dict[int, int] = {}
        self._events_by_pid: dict[int, list[EpochBegins | Schedule]] = {}
        self._recent: deque[tuple[float, int]] = deque(maxlen=400)

    @property
    def age(self) -> float:
        """Give the seconds since the first step."""
        return self.now - self.first_step_at if self.first_step_at is not None else 0.0

    @property
    def planned(self) -> int | None:
        """Give the step at which the run will be done; unknown where it has begun anew after an earlier plan."""
        return self._planned if self._planned >= self.step and not self._plans_done else None

    @property
    def epoch_begins(self) -> list[tuple[int, int]]:
        """Give the steps at which epochs began, as told, else by an even division of what is planned."""
        if self.begins or not self._planned or self.epochs < 2 or self._plans_done:
            return self.begins
        each = self._planned / self.epochs
        done = min(int(self.step / each), self.epochs - 1, _EPOCHS_KEPT) if each >= 1 else 0
        return [(round(n * each), n + 1) for n in range(done + 1)] if each >= 2 else []

    @property
    def epoch_length(self) -> float:
        """Give the steps of an epoch; 0 where that is not known."""
        if self.per_epoch or not self._planned or self.epochs < 2:
            return float(self.per_epoch)
        return self._planned / self.epochs

    @property
    def per_step(self) -> float | None:
        """Give the seconds that a step has taken of late, with all that lies between the steps."""
        if len(self._recent) < 2:
            return None
        (begin, first), (end, last) = self._recent[0], self._recent[-1]
        return (end - begin) / (last - first) if last > first else None

    def follow(self, sample: Sample, lines: Sequence[Line], events: Sequence[Line]) -> None:
        """Take in one sample and what came with it."""
        self.now, self.wall_clock = sample.m, sample.t
        for event in events:
            self._event(event)
        done = [(line.pid, line.last) for line in lines if isinstance(line, StepWindow)]
        for pid, step in (*done, *((state.pid, state.step) for state in sample.agents)):
            if pid is not None and step is not None:
                self._counts[pid] = max(self._counts.get(pid, 0), step)
        if len(self._counts) > 256:
            self._counts = dict(sorted(self._counts.items(), key=lambda one: -one[1])[:64])
        alive = {pid for state in sample.agents if (pid := state.pid) is not None}
        known = [pid for pid in self._counts if pid in alive] or list(self._counts)
        if known:
            self._choose(max(known, key=lambda pid: (self._counts[pid], -pid)), gone=self.pid not in alive)
        if self.pid is not None and self._counts.get(self.pid):
            self.step = self._counts[self.pid]
            if self.first_step_at is None:
                self.first_step_at = self.now
            self._recent.append((self.now, self.step))
            while len(self._recent) > 2 and self.now - self._recent[0][0] > _RECENT:
                self._recent.popleft()

    def _choose(self, pid: int, *, gone: bool) -> None:
        """Of several ranks or folds one speaks for the run: the one furthest on, for as long as it is there."""
        if pid == self.pid or (self.pid is not None and not gone and self._counts[pid] < 2 * self.step):
            return
        self.pid, self.step, self.turn = pid, 0, self.turn + 1
        self.begins, self.passes, self._planned, self._plans_done, self.per_epoch = [], 0, 0, 0, 0
        self.first_step_at = None
        self._recent.clear()
        for event in self._events_by_pid.get(pid, []):
            self._mine(event)

    def _event(self, event: Line) -> None:
        if isinstance(event, Adapter) and event.state == "on":
            self.adapters = True
        if not isinstance(event, (EpochBegins, Schedule)) or event.pid is None:
            return
        pid = event.pid
        if pid == self.pid:
            self._mine(event)
        elif len(self._events_by_pid) < 64 or pid in self._events_by_pid:
            # Whose run it is shows only with the first steps.
            self._events_by_pid[pid] = [*self._events_by_pid.get(pid, [])[-_EPOCHS_KEPT:], event]

    def _mine(self, event: EpochBegins | Schedule) -> None:
        if isinstance(event, EpochBegins):
            self.passes += 1
            self.begins.append((event.step or 0, event.epoch or self.passes))
            if len(self.begins) > _EPOCHS_KEPT:
                del self.begins[2]  # the first epoch's own bounds stay known
            return
        steps = event.steps or 0
        done = max(self.step, self.begins[-1][0] if self.begins else 0)
        if self._planned and steps > self._planned and done >= self._planned:
            self._plans_done += 1  # one `fit` after another: where that ends, nobody said
        self._planned = steps
        self.per_epoch = event.steps_per_epoch or self.per_epoch
        self.epochs = event.epochs or self.epochs
