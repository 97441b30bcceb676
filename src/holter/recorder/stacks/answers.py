"""Stacks that were asked for and not waited for: the answers are read at a later glance.

A process's file outlives it, and so does the answer. Answers are told apart by their place in that file: `pids` tells
whom not to ask again yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holter.recorder.loop.processes import thread_cpu
from holter.recorder.stacks import take

SETTLES_S = 0.06  # seconds until an answer is there and whole
_COMPUTED = 0.15  # seconds of a thread's own in which Python's code would have let the GIL go thirty times
LATE_S = 2.0  # seconds that one is waited for, where the process is long in compiled code that keeps the GIL


@dataclass
class Asked:
    """One question: of which thread, when, where its answer begins, and what is to be told with it."""

    pid: int
    tid: int
    path: Path
    begin: int
    when: float
    fields: dict[str, Any]
    cpu: float = 0.0  # seconds that the thread had run
    insisted: bool = False


class Answers:
    """The open questions of one asker."""

    def __init__(self, agent_dir: Path | None, ask: Callable[[int, Path, int | None], int | None] = take.ask) -> None:
        self._agent_dir = agent_dir
        self._ask = ask
        self._open: list[Asked] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def pids(self) -> set[int]:
        return {asked.pid for asked in self._open}

    def due(self) -> float:
        """When the first of them can be read; never, where none is open."""
        return min((asked.when + SETTLES_S for asked in self._open), default=float("inf"))

    def ask(self, pid: int, tid: int, now: float, fields: dict[str, Any]) -> bool:
        """Ask a thread for its stack; False when it can't be asked."""
        if self._agent_dir is None:
            return False
        path = self._agent_dir / f"{pid}.stacks"
        begin = self._ask(pid, path, tid)
        if begin is None:
            return False
        cpu = thread_cpu(pid, tid) or 0.0
        self._open.append(Asked(pid, tid, path, begin, now, {"at": round(now, 3), **fields}, cpu))
        return True

    def insist(self, now: float) -> None:
        """Ask faulthandler where a main thread has computed for long and our thread got no word in.

        Then it is in compiled code that keeps the GIL, and no frame moves. One that got no CPU may be anywhere.
        """
        for asked in self._open:
            if asked.insisted or asked.tid != asked.pid or now - asked.when < _COMPUTED:
                continue
            cpu = thread_cpu(asked.pid, asked.tid)
            if cpu is not None and cpu - asked.cpu >= _COMPUTED and not take.written(asked.path, asked.begin):
                asked.insisted = True
                take.ask_stuck(asked.pid, asked.path)

    def read(self, now: float) -> Iterator[tuple[Asked, list[dict[str, Any]]]]:
        """What has been answered since."""
        for asked in [one for one in self._open if now - one.when >= SETTLES_S]:
            # Where the same process was asked again meanwhile, the next answer begins there.
            later = [one.begin for one in self._open if one.pid == asked.pid and one.begin > asked.begin]
            threads = take.written(asked.path, asked.begin, min(later, default=None))
            if threads or now - asked.when >= LATE_S:
                self._open.remove(asked)
            if threads:
                yield asked, threads
