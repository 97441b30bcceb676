"""Between two samples: when a process's memory shoots up, its stacks are taken while it still has any.

A step that does not fit takes a container from half full to dead in a fraction of a second, and a kill for want of
memory leaves no traceback. So the largest processes are glanced at twenty times a second, one small file each, and
one that grows fast against what is left is asked for its stacks. Nothing is waited for: the answer is read at a later
glance, from a file that outlives the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holter.recorder.loop.sampler import nearest_limit
from holter.recorder.platform import here
from holter.recorder.stacks import take
from holter.recorder.stacks.answers import Answers

EVERY = 0.05  # seconds between glances
_MAX_LOOKS = 24  # looks in one run
_LARGEST = 3  # processes that are watched
_FAST_SHARE = 0.02  # of the limit, within a second: growth that is worth a look
_SECOND = 1.0
_APART = 0.06  # of the limit: how much more there must be before the next look


@dataclass
class _Watched:
    pid: int
    at_sample: float


class MemoryLook:
    """Told of each sample, asked at each glance; takes stacks of what grows fast."""

    def __init__(
        self,
        agent_dir: Path | None,
        event: Callable[..., None],
        resident: Callable[[int], int | None] | None,
        ask: Callable[[int, Path, int | None], int | None] = take.ask,
    ) -> None:
        self._agent_dir = agent_dir
        self._event = event
        self._resident = resident
        self._answers = Answers(agent_dir, ask)
        self._watched: list[_Watched] = []
        self._used = self._limit = 0.0
        self._next_at = 0.0  # bytes: no look below this
        self._past: deque[tuple[float, float]] = deque(maxlen=64)  # moments of the last second, and what was used
        self._taken = 0

    @property
    def watching(self) -> bool:
        return bool(self._answers) or (bool(self._watched) and self._taken < _MAX_LOOKS)

    def sampled(self, sample: dict[str, Any], armed: set[int]) -> None:
        """A full reading: which processes to watch, and how much there is left."""
        if self._resident is None or self._agent_dir is None:
            return
        nearest = nearest_limit(sample)
        listed = sample.get("processes", {}).get("list")
        if nearest is None or listed is None:
            return
        self._used, self._limit = nearest
        if self._used < self._next_at - 2 * _APART * self._limit:
            self._next_at = 0.0  # it has come down: the next climb is another one
        largest = sorted((row for row in listed if row["pid"] in armed), key=lambda row: -row.get("rss", 0))
        self._watched = [_Watched(row["pid"], float(row.get("rss", 0))) for row in largest[:_LARGEST]]

    def glance(self, now: float) -> None:
        """A moment between two samples."""
        self._collect(now)
        self._answers.insist(now)
        if self._taken >= _MAX_LOOKS or self._resident is None:
            return
        grown: list[tuple[float, int]] = []
        for one in self._watched:
            held = self._resident(one.pid)
            if held is not None:
                grown.append((held - one.at_sample, one.pid))
        if not grown:
            return
        used = self._used + max(0.0, sum(by for by, _ in grown))
        while self._past and now - self._past[0][0] > _SECOND:
            self._past.popleft()
        self._past.append((now, used))
        more = used - min(before for _, before in self._past)
        free = self._limit - used
        if more < min(_FAST_SHARE * self._limit, free) or used < self._next_at or used < 0.3 * self._limit:
            return
        self._next_at = used + _APART * self._limit
        self._take(max(grown)[1], used, now)

    def _take(self, pid: int, used: float, now: float) -> None:
        fields = {"used": round(used), "limit": round(self._limit)}
        self._taken += self._answers.ask(pid, pid, now, fields)

    def _collect(self, now: float) -> None:
        for asked, threads in self._answers.read(now):
            via = "faulthandler" if asked.insisted else "guest"
            self._event("stacks", pid=asked.pid, reason="memory", via=via, threads=threads, **asked.fields)

    def finish(self) -> None:
        """The run has ended: what was written last."""
        self._collect(float("inf"))


def resident_here() -> Callable[[int], int | None] | None:
    """The quick reading of this platform, where there is one."""
    module = here("resident")
    found: Callable[[int], int | None] | None = module.resident if module is not None else None
    return found
