"""Sees that a run makes no progress: thresholds learned from this run's own steps and phases.

Pure logic: time and readings are handed in. A silence is suspicious when it is far longer than any before it in the
same phase; it is told when the process has also stayed in the same place with nothing to show for it. Phases that
are long by nature (the first step, validation, a checkpoint, compiling) get more time, and so does a run that is
still busy: a false alarm costs more trust than a late one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

SHORTEST = 9.0  # seconds of silence below which nothing is ever said
TIMES = 8.0  # a silence this many times the longest before it is suspicious
LONG_PHASES = {"start": 240.0, "validation": 150.0, "checkpoint": 240.0, "compile": 900.0}
AFTER_THE_LAST_STEP = 600.0
BUSY_TIMES = 20.0
BUSY_SHORTEST = 600.0
BUSY_CORES = 0.15  # of one core, over the silence: below this the tree does nothing
MOVING_BYTES = 256_000.0  # a second, read or written: above this the tree is at work
IN_A_LONG_PHASE = 25.0  # seconds after which a wait that nothing can end is told in a phase that may take long
NO_CORES = 0.02  # of one core: not even a thread that polls
PAUSE = 2.5  # seconds between the two looks at the stacks

# A user's function that says by its name that it takes long and makes no steps; one that also trains does not count.
LONG_BY_NAME = re.compile(
    r"(?:^|_)(?:valid|eval|test|infer|predict|generate|save|checkpoint|snapshot|export|upload|download)", re.IGNORECASE
)
TRAINS_BY_NAME = re.compile(r"train|fit|main|loop", re.IGNORECASE)


@dataclass
class Activity:
    """What the tree did at one moment: cumulative CPU seconds and bytes moved."""

    m: float
    cpu_s: float
    bytes: float


@dataclass
class Suspicion:
    """A silence that has outlasted its limit."""

    pid: int
    since: float
    phase: str
    step: int
    limit: float
    learned: str
    cpu: float
    early: bool = False  # of a phase that may take longer: it counts only if nothing can end the wait


@dataclass
class WatchedProcess:
    sign: tuple[float, ...] = ()
    since: float = 0.0
    phase: str = "start"
    longest: dict[str, float] = field(default_factory=dict)
    reported: bool = False
    seen: float = 0.0  # the last look at which nothing had moved
    not_before: float = 0.0
    patience: float = 0.0  # extra time granted for this silence


class Watch:
    """Follows every trainer of a run."""

    def __init__(self) -> None:
        self._watched: dict[int, WatchedProcess] = {}
        self._activity: list[Activity] = []

    def observe(self, now: float, agents: list[dict[str, Any]], activity: Activity | None) -> list[tuple[str, Any]]:
        """One look: `("suspect", Suspicion)` for a silence that wants stacks, `("over", (pid, lasted))` for its end.

        `("look", Suspicion)` is none of a hang unless nothing in the run can end the wait.
        """
        if activity is not None:
            self._activity = [*[a for a in self._activity if now - a.m <= 3600.0], activity][-4000:]
        found: list[tuple[str, Any]] = []
        present = {agent["pid"] for agent in agents}
        for pid in [pid for pid in self._watched if pid not in present]:
            del self._watched[pid]
        for agent in agents:
            process = self._watched.setdefault(agent["pid"], WatchedProcess(since=now))
            sign = (agent["step"], agent["since"], agent["activity"])
            if sign != process.sign:
                found += self._sign_of_life(process, agent, sign, now)
                continue
            process.seen = now
            # Of a program that has not begun to train, only a wait that nothing can end is told from what it may be at.
            suspicion = self._early(process, agent, now) if agent.get("bare") else self._silent(process, agent, now)
            if suspicion is not None:
                found.append(("look" if suspicion.early else "suspect", suspicion))
        return found

    def reported(self, pid: int) -> None:
        """The silence was confirmed and told: once is enough."""
        if pid in self._watched:
            self._watched[pid].reported = True

    def not_a_hang(self, pid: int, now: float, patience: float = 0.0) -> None:
        """The stacks say that it moves, or that it is at something that takes long: look again later."""
        process = self._watched.get(pid)
        if process is not None:
            process.patience = max(process.patience, patience)
            process.not_before = now + max(SHORTEST, (now - process.since) * 0.5)

    def suspended(self, now: float) -> None:
        """The run or the machine was stopped for a while: the time does not count."""
        for process in self._watched.values():
            process.since = now
        self._activity.clear()

    def _sign_of_life(
        self, process: WatchedProcess, agent: dict[str, Any], sign: tuple[float, ...], now: float
    ) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        if process.sign:
            silence = max(0.0, max(agent["since"], agent["activity"]) - process.since)
            steps = agent["step"] - process.sign[0]
            if steps > 1 and not process.reported:
                # Several steps since the last look: the time between two looks is none of their silences.
                silence = max(silence / steps, process.seen - process.since)
            # The first step may have been a minute of compiling: that says nothing of the others.
            name = "start" if process.sign[0] == 0 else _family(process.phase)
            # The silence that was told as a hang teaches nothing, or the next one would be given hours.
            if process.reported:
                found.append(("over", (agent["pid"], silence)))
            else:
                process.longest[name] = max(process.longest.get(name, 0.0), silence)
        process.sign = sign
        process.since = max(agent["since"], agent["activity"]) if agent["since"] else now
        process.phase = agent["phase"]
        process.reported = False
        process.seen = process.since
        process.not_before = process.patience = 0.0
        return found

    def _silent(self, process: WatchedProcess, agent: dict[str, Any], now: float) -> Suspicion | None:
        silence = now - process.since
        if process.reported or silence < SHORTEST or now < process.not_before:
            return None
        limit, learned = self._limit(process, agent)
        if silence < limit:
            return self._early(process, agent, now)
        did = self._did(process.since, now)
        cpu, moving = did or (0.0, 0.0)
        if did is None or cpu >= BUSY_CORES or moving >= MOVING_BYTES:
            limit = max(BUSY_SHORTEST, limit * BUSY_TIMES)
            if silence < limit:
                return None
            learned += "; longer, since it is busy" if did else "; longer, since it may be busy"
        return Suspicion(agent["pid"], process.since, agent["phase"], agent["step"], limit, learned, cpu)

    def _early(self, process: WatchedProcess, agent: dict[str, Any], now: float) -> Suspicion | None:
        """A phase that may take long, in which nothing moves at all: worth a look, in case nothing ever will."""
        name = "start" if agent["step"] == 0 else _family(agent["phase"])
        done = agent["planned"] and agent["step"] >= agent["planned"]
        silence, limit = now - process.since, IN_A_LONG_PHASE
        if name not in LONG_PHASES or done or process.reported or silence < limit or now < process.not_before:
            return None
        did = self._did(process.since, now)
        if did is None or did[0] >= NO_CORES or did[1] >= MOVING_BYTES:
            return None
        learned = "nothing in the run moves at all"
        return Suspicion(agent["pid"], process.since, agent["phase"], agent["step"], limit, learned, did[0], early=True)

    def _limit(self, process: WatchedProcess, agent: dict[str, Any]) -> tuple[float, str]:
        name = "start" if agent["step"] == 0 else _family(agent["phase"])
        longest = process.longest.get(name, 0.0)
        limit = max(SHORTEST, longest * TIMES)
        learned = f"{TIMES:.0f} times the longest silence before it, {longest:.1f} s"
        if limit == SHORTEST:
            learned = f"no silence before it was longer than {max(longest, 0.1):.1f} s"
        if name in LONG_PHASES and limit < LONG_PHASES[name]:
            limit, learned = LONG_PHASES[name], f"the default for a {name}, before this run has had one"
        if agent["planned"] and agent["step"] >= agent["planned"] and limit < AFTER_THE_LAST_STEP:
            limit, learned = AFTER_THE_LAST_STEP, "all planned steps are done"
        if process.patience > limit:
            limit, learned = process.patience, "by their names, its functions take long"
        return limit, learned

    def _did(self, since: float, now: float) -> tuple[float, float] | None:
        """Cores used and bytes moved per second in the later half of the silence: its start is still the last step's.

        None when that is not known. A large tree is read less often, so the reading before the middle counts too.
        """
        middle = since + (now - since) / 2
        later = [a for a in self._activity if a.m >= middle]
        earlier = [a for a in self._activity if since <= a.m < middle]
        window = later if len(later) >= 2 else [*earlier[-1:], *later]
        if len(window) < 2:
            return None
        first, last = window[0], window[-1]
        span = max(last.m - first.m, 1e-3)
        return max(0.0, last.cpu_s - first.cpu_s) / span, max(0.0, last.bytes - first.bytes) / span


def _family(phase: str) -> str:
    """Phases that share what was learned: all of a training step is one."""
    return phase if phase in LONG_PHASES else "step"


def long_by_name(functions: list[str]) -> bool:
    """True when one of the user's functions on the stack says that it takes long."""
    return any(LONG_BY_NAME.search(name) and not TRAINS_BY_NAME.search(name) for name in functions)
