"""What a step spends its time on: now and then, at uneven moments, the stack of a run that trains slowly.

The steps' own account says how long a step waits for data or computes; it does not say in which line. So a trainer
whose steps are long, or mostly not computing, is asked for its stack a few times, with the data workers that it has
and the threads in which TensorFlow makes its data. A thread of ours in that process answers when it has the GIL, see
`take.ask`. Nothing is waited for: the answer is read at a later glance.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holter.recorder.hang.waiting import thread_waiting
from holter.recorder.loop.agents import Agents
from holter.recorder.stacks import take
from holter.recorder.stacks.answers import Answers

MAX_LOOKS = 40  # looks in one run
_FIRST = 14  # looks while the run shows for the first time that it is slow
_BURST_LOOKS = 8  # and when its steps have become twice as long
_WARM = 2.0  # seconds after the first step
_RECENT = 10.0  # seconds of steps that are judged
_LONG_STEP_S = 0.010  # seconds: a step worth a look
_IDLE = 0.5  # share of a short step that is not computing: worth a look too
_BETWEEN = 0.03  # seconds between glances at least, also while nobody may be asked
_TRAINERS = 2
_WORKERS = 3
_HELPERS = 3  # threads of the trainer that make its data
_HELPERS_KNOWN = 64
_FRAMES = 40


@dataclass
class _Trainer:
    """The recent steps of one process."""

    first: float
    windows: deque[tuple[float, float, float, float]] = field(default_factory=deque)
    steps: int = 0

    def add(self, line: dict[str, Any]) -> None:
        waited = float(line.get("data", 0.0)) + float(line.get("other", 0.0))
        self.windows.append((line["m"], float(line.get("n", 0)), float(line.get("sum", 0.0)), waited))
        self.steps = max(self.steps, int(line.get("last", 0)))

    def pace(self, now: float) -> tuple[float, float]:
        """Seconds per step over the last seconds, and the share of them that nothing is computed."""
        while self.windows and self.windows[0][0] < now - _RECENT:
            self.windows.popleft()
        n, took, waited = (sum(window[at] for window in self.windows) for at in (1, 2, 3))
        if not n:
            return (_RECENT, 1.0) if self.steps else (0.0, 0.0)
        return took / n, waited / took if took else 0.0


class SlowLook:
    """Told of each tick, asked at each glance; takes stacks of a slow trainer at uneven moments."""

    def __init__(
        self,
        agents: Agents,
        agent_dir: Path | None,
        event: Callable[..., None],
        ask: Callable[[int, Path, int | None], int | None] = take.ask,
        uneven: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._agents = agents
        self._agent_dir = agent_dir
        self._event = event
        self._answers = Answers(agent_dir, ask)
        self._uneven = uneven
        self._trainers: dict[int, _Trainer] = {}
        self._children: dict[int, list[int]] = {}
        self._helpers: dict[int, list[int]] = {}
        self._to_ask: list[tuple[int, int]] = []  # process and thread: one of a process at a time
        self._next = float("inf")
        self._burst = _FIRST
        self._later = 0
        self._first_pace = 0.0
        self._slowed = False
        self.taken = 0

    def ticked(
        self,
        now: float,
        timeline: Iterable[dict[str, Any]],
        sample: dict[str, Any],
        events: Iterable[dict[str, Any]] = (),
    ) -> None:
        """One tick: what steps there were, and who is there to be asked."""
        for event in events:
            if event.get("k") == "data-thread" and isinstance(event.get("tid"), int):
                known = self._helpers.setdefault(event.get("pid", 0), [])
                known[:] = [*known[1 - _HELPERS_KNOWN :], event["tid"]]
        for line in timeline:
            if line.get("k") == "steps" and isinstance(line.get("pid"), int):
                self._trainers.setdefault(line["pid"], _Trainer(line["m"])).add(line)
        listed = sample.get("processes", {}).get("list")
        if listed is not None:
            alive = {row["pid"] for row in listed}
            self._trainers = {pid: one for pid, one in self._trainers.items() if pid in alive}
            self._children = {}
            for row in listed:
                if row["pid"] in self._agents.armed:
                    self._children.setdefault(row.get("ppid", 0), []).append(row["pid"])
        slow = self._slow(now)
        if self.taken >= MAX_LOOKS or not slow:
            self._next = float("inf")
        elif self._next == float("inf"):
            self._next = now + self._uneven(0.1, 0.9)
        if slow:
            self._notice_slowing(max(self._trainers[pid].pace(now)[0] for pid in slow))

    def due(self, now: float) -> float:
        """Seconds until the next glance is of use."""
        begin = now if self._to_ask else self._next
        return max(_BETWEEN, min(begin, self._answers.due()) - now)

    def glance(self, now: float, *, may_ask: bool = True) -> None:
        """A moment between two ticks; nobody is asked while a stall is being looked into."""
        self._collect(now)
        if not may_ask or self._agent_dir is None:
            self._to_ask.clear()
            return
        if now >= self._next:
            for pid in self._slow(now)[:_TRAINERS]:
                self._to_ask.append((pid, pid))
                self._to_ask += [(pid, tid) for tid in self._busy_helpers(pid)]
                self._to_ask += [(child, child) for child in _some(self._children.get(pid, []), _WORKERS)]
            self.taken += 1
            self._next = now + self._pause() if self.taken < MAX_LOOKS else float("inf")
        waiting = self._answers.pids
        for pid, tid in list(self._to_ask):
            if pid not in waiting:  # answers are told apart by their order in a process's file
                waiting.add(pid)
                self._to_ask.remove((pid, tid))
                self._take(pid, tid, now)

    def finish(self) -> None:
        """The run has ended: what was written last."""
        self._collect(float("inf"))

    def _busy_helpers(self, pid: int) -> list[int]:
        """Some threads that make data, those first that do not wait for work."""
        known = _some(self._helpers.get(pid, []), 4 * _HELPERS)
        return sorted(known, key=lambda tid: thread_waiting(pid, tid).get("syscall") == "futex")[:_HELPERS]

    def _slow(self, now: float) -> list[int]:
        """The trainers that are worth a look, those with the most steps first."""
        found = []
        for pid, one in self._trainers.items():
            per_step, idle = one.pace(now)
            if now - one.first >= _WARM and (per_step >= _LONG_STEP_S or idle >= _IDLE):
                found.append(pid)
        return sorted(found, key=lambda pid: -self._trainers[pid].steps)

    def _notice_slowing(self, pace: float) -> None:
        if self.taken < _FIRST:
            self._first_pace = max(self._first_pace, pace)
        elif not self._slowed and pace > 2 * self._first_pace:
            self._slowed = True
            self._burst = self.taken + _BURST_LOOKS

    def _pause(self) -> float:
        if self.taken < self._burst:
            return self._uneven(0.4, 1.3)
        self._later += 1
        return self._uneven(0.6, 1.4) * min(8.0 * 2.0 ** (self._later // 3), 3600.0)

    def _take(self, pid: int, tid: int, now: float) -> None:
        ring = self._agents.rings.get(pid)
        fields: dict[str, Any] = {"round": self.taken, **thread_waiting(pid, tid)}
        if ring is not None:
            state = ring.view.state()
            fields.update(phase=state["phase"], step=state["step"])
        if tid != pid:
            fields["tid"] = tid
        asked = self._answers.ask(pid, tid, now, fields)
        if not asked and tid != pid and tid in self._helpers.get(pid, []):
            self._helpers[pid].remove(tid)  # it is gone

    def _collect(self, now: float) -> None:
        for asked, threads in self._answers.read(now):
            for thread in [thread for thread in threads if thread["frames"]][:1]:
                thread.update(main=asked.tid == asked.pid, frames=thread["frames"][:_FRAMES])
                self._event(
                    "stacks",
                    pid=asked.pid,
                    role=self._agents.role(asked.pid),
                    reason="slow",
                    via="guest",
                    threads=[thread],
                    **asked.fields,
                )


def _some(known: list[int], most: int) -> list[int]:
    return random.sample(known, min(most, len(known)))
