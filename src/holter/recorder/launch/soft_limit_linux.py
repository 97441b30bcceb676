"""The soft wall: a little below the true limit of memory, so that an allocation fails and nothing is killed.

The kernel's OOM killer raises nothing that a reflex could catch. `RLIMIT_DATA` does: PyTorch's allocator then reports
that it can't allocate, and the batch is split. The wall also stands before swap. Where it belongs is seen from outside,
for processes whose agent has said that it can act on such an error, and follows what the rest of the run uses. It is
written to a page of theirs; they put it up around calls that they watch over, and nowhere else (`soft_limit`).
"""

from __future__ import annotations

import os
import struct
from collections import deque
from pathlib import Path
from statistics import median
from typing import Any

from holter.recorder.loop.sampler import nearest_limit

_BELOW = 0.03  # of the limit
_AT_LEAST = 32 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")
_WORD = struct.Struct("<q")
_LOOKS, _LONG = 3, 40  # the last few readings, and many


class SoftLimit:
    """Moves the wall of each armed process at every tick."""

    def __init__(self, agent_dir: Path | None) -> None:
        self._agent_dir = agent_dir
        self._armed: dict[int, LimitedProcess] = {}
        self._known: tuple[float, float] | None = None

    def look(self, sample: dict[str, Any], events: list[dict[str, Any]]) -> None:
        for event in events:
            # Only who can split a batch is helped by an error; others would only die of it sooner.
            split = event.get("k") == "armed" and event.get("act") == "split-batch"
            if split and isinstance(event.get("pid"), int):
                self._arm(event["pid"], bool(event.get("tidy")))
        self._known = nearest_limit(sample) or self._known
        if self._known is None:
            return
        used, limit = self._known
        end = limit - max(_BELOW * limit, _AT_LEAST)
        for pid, process in list(self._armed.items()):
            try:
                process.move(pid, used, end)
            except (OSError, ValueError, IndexError, struct.error):
                del self._armed[pid]  # it is gone, or has no such page

    def _arm(self, pid: int, tidy: bool) -> None:
        if self._agent_dir is not None:
            process = self._armed.setdefault(pid, LimitedProcess(self._agent_dir / f"{pid}.wall"))
            process.tidy = process.tidy or tidy


class LimitedProcess:
    """One process, what is known of its memory, and its wall.

    The kernel counts what is asked for, the limit what is touched: what was asked for and is untouched comes on top. At
    first that is only what never was touched, such as the stacks of idle threads, since what was freed may be used
    again. Of a process that is tidy each tensor has pages of its own, which go when it goes: there all of it counts.
    A step may take or free much between two readings, so that of what others use the middle of the last few counts.
    Of what is untouched the least of many does: at nearly every look some tensor is just being filled, and that is no
    room.
    """

    def __init__(self, page: Path) -> None:
        self.page = page
        self.tidy = False
        self._others: deque[float] = deque(maxlen=_LOOKS)
        self._untouched: deque[int] = deque(maxlen=_LONG)
        self._least: int | None = None
        self._soft_limit = self._raised = self._keep = 0

    def move(self, pid: int, used_by_all: float, end: float) -> None:
        """Set the wall anew."""
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared, _, _, data, *_ = (int(word) * _PAGE for word in file.read().split())
        with open(self.page, "r+b", buffering=0) as file:
            (present,) = _WORD.unpack(file.read(_WORD.size))
            soft_limit = self.place(resident - shared, data, used_by_all, end, present)
            os.pwrite(file.fileno(), _WORD.pack(soft_limit), 0)
        self._soft_limit = soft_limit

    def place(self, used: int, data: int, used_by_all: float, end: float, present: int) -> int:
        """Where the wall belongs; a process that has given memory back has raised it by as much, and is believed."""
        untouched = max(0, data - used)
        gave_back = bool(self._soft_limit) and self._soft_limit < present
        if gave_back:
            self._untouched.clear()  # what it has given back is untouched now, and was not before
            self._least = None
        self._others.append(used_by_all - used)
        self._untouched.append(untouched)
        self._least = untouched if self._least is None else min(self._least, untouched)
        on_top = min(self._untouched) if self.tidy else self._least
        soft_limit = max(1, int(end - median(self._others)) + on_top)  # 0 says that there is none
        if gave_back:
            self._raised, self._keep = present, _LOOKS
        if self._keep:
            self._keep -= 1
            soft_limit = max(soft_limit, self._raised)
        return soft_limit
