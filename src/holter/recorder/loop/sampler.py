"""Reads the probes, each guarded by itself, at one reading a second in calm and ten when memory is near its wall."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holter.errors import NoData
from holter.probes.probe import Probe, Tree

CALM_S = 1.0
URGENT_S = 0.1
_NEAR_SHARE = 0.90  # of the limit
_SOON_S = 30.0  # seconds to the limit at the present growth
_REST_AFTER_FAILURE = 30.0
_CHEAP = 0.005  # seconds of CPU: what may be read once more at the end
_BUDGET = 0.006  # of a core, for one probe: one that costs more is read less often


@dataclass
class _State:
    probe: Probe
    due: float = 0.0
    missing: str = ""
    readings: int = 0
    cost: float = 0.0
    recent: list[float] = field(default_factory=list)


class Sampler:
    """One `sample` line per tick. What can't be read is told once, and again when the reason changes."""

    def __init__(
        self,
        probes: Sequence[Probe],
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._states = [_State(probe) for probe in probes]
        self._clock = clock
        self._cpu = cpu_clock
        self.urgent = False
        self._curve: list[tuple[float, float]] = []
        self._limit = 0.0

    @property
    def pace(self) -> float:
        return URGENT_S if self.urgent else CALM_S

    def sample(self, tree: Tree, now: float, *, last: bool = False) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The readings that are due (the `last` time all that are cheap), and the `missing` facts that are new."""
        line: dict[str, Any] = {}
        missing: list[dict[str, Any]] = []
        for state in self._states:
            cheap = max(state.recent, default=0.0) < _CHEAP
            hurried = ((self.urgent and state.probe.urgent) or (last and cheap)) and not state.missing
            if now + 0.02 < state.due and not hurried:
                continue
            reading, because = self._read(state, tree, now)
            if reading:  # an empty one: nothing to say this time
                line[state.probe.name] = reading
            if because != state.missing:
                state.missing = because
                if because:
                    missing.append({"probe": state.probe.name, "because": because})
        self._choose_pace(line, now)
        line["pace"] = "urgent" if self.urgent else "calm"
        return line, missing

    def _read(self, state: _State, tree: Tree, now: float) -> tuple[dict[str, Any] | None, str]:
        begun = self._cpu()
        reading: dict[str, Any] | None = None
        because = ""
        try:
            reading = dict(state.probe.read(tree))
        except NoData as error:
            because = str(error)
        except Exception as error:
            because = f"{type(error).__name__}: {error}"
        cost = self._cpu() - begun
        state.readings += 1
        state.cost += cost
        state.recent = [*state.recent[-4:], cost]
        usual = sorted(state.recent)[len(state.recent) // 2]
        every = max(state.probe.every, usual / _BUDGET)
        state.due = now + (every if reading is not None else max(every, _REST_AFTER_FAILURE))
        return reading, because

    def _choose_pace(self, line: dict[str, Any], now: float) -> None:
        """Ten readings a second within 10 % of the limit, or when growth would reach it within half a minute."""
        nearness = nearest_limit(line)
        self._curve = [(m, u) for m, u in self._curve if now - m <= 5.0]
        if nearness is None:
            self.urgent = self.urgent and bool(self._curve)  # what is no longer known is no reason to hurry
            return
        used, limit = nearness
        if limit != self._limit:
            self._limit, self._curve = limit, []  # another wall: what was used against the last one is no growth
        self._curve.append((now, used))
        first_m, first_u = self._curve[0]
        growth = (used - first_u) / (now - first_m) if now - first_m >= 0.9 else 0.0
        self.urgent = used >= _NEAR_SHARE * limit or (growth > 0 and (limit - used) / growth <= _SOON_S)

    def costs(self) -> dict[str, float]:
        """Seconds of CPU per reading, by probe."""
        return {s.probe.name: round(s.cost / s.readings, 6) for s in self._states if s.readings}


def nearest_limit(line: dict[str, Any]) -> tuple[float, float] | None:
    """Of the host's memory limits in a sample, the nearest: what is used and the limit.

    A GPU is left out: caching allocators fill it on purpose, and nothing outside the process could react to it.
    """
    found: list[tuple[float, float]] = []
    cgroup, memory = line.get("cgroup", {}), line.get("memory", {})
    if cgroup.get("limit"):
        # File pages can be dropped: what can't is the anonymous part, where it is known.
        used = cgroup.get("usage", 0) - cgroup.get("file", 0)
        found.append((max(used, cgroup.get("anon", 0)), cgroup["limit"]))
    if memory.get("total") and "available" in memory:
        found.append((memory["total"] - memory["available"], memory["total"]))
    if not found:
        return None
    return max(found, key=lambda pair: pair[0] / pair[1])
