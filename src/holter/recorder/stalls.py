"""From a suspicious silence to a stall that is told: two looks at the stacks, with a pause between them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holter.recorder import stacks
from holter.recorder.guests import Guests
from holter.recorder.waiting import waiting
from holter.recorder.watch import BUSY_SHORTEST, LONG_PHASES, PAUSE, Activity, Suspicion, Watch, long_by_name
from holter.units import duration

_WORKERS = 16
_REMEMBERED = 600

Event = Callable[..., None]


# Where a program sits while someone looks at a figure, types an answer or debugs.
_FOR_A_PERSON = re.compile(
    r"/(tkinter|matplotlib/backends|PyQt\d|PySide\d|IPython|ipykernel|prompt_toolkit|pdbpp?)/|/(pdb|bdb|code|cmd)\.py$"
)


def waits_for_a_person(threads: list[dict[str, Any]], waits: dict[str, Any]) -> bool:
    """True when the main thread reads the terminal, or stands in a window's or a debugger's own loop."""
    if str(waits.get("path", "")).startswith(("/dev/pts/", "/dev/tty")):
        return True
    main: dict[str, Any] = next((thread for thread in threads if thread.get("main")), {"frames": []})
    return any(_FOR_A_PERSON.search(frame["file"]) for frame in main["frames"])


@dataclass
class _Suspect:
    suspicion: Suspicion
    first_look: float
    threads: list[dict[str, Any]]


class Stalls:
    """Asks the watch at every tick, takes stacks when it suspects, and tells what both looks confirm."""

    def __init__(self, guests: Guests, guest_dir: Path | None, event: Event, say: Callable[[str], None]) -> None:
        self.guests = guests
        self.guest_dir = guest_dir
        self.event = event
        self.say = say
        self.watch = Watch()
        self.hung = False
        self._suspects: dict[int, _Suspect] = {}
        self._running: list[tuple[float, bool]] = []  # whether any process of the tree wanted the CPU, by reading

    @property
    def looking(self) -> bool:
        return bool(self._suspects)

    def suspended(self, now: float) -> None:
        self.watch.suspended(now)
        self._suspects.clear()
        self._running.clear()

    def look(self, now: float, states: list[dict[str, Any]], sample: dict[str, Any]) -> None:
        """One tick."""
        processes = sample.get("processes")
        activity = None
        if processes:
            moved = processes.get("read_bytes", 0) + processes.get("write_bytes", 0)
            activity = Activity(now, float(processes.get("cpu_s", 0.0)), float(moved))
            if any(e.get("state") == "T" and e["pid"] in self.guests.rings for e in processes.get("list", [])):
                self.suspended(now)
                return
            running = any(entry.get("state") == "R" for entry in processes.get("list", []))
            self._running = [*self._running[-_REMEMBERED:], (now, running)]
        for what, detail in self.watch.observe(now, states, activity):
            if what == "over":
                self._over(*detail)
            elif detail.pid not in self._suspects:
                self._suspects[detail.pid] = _Suspect(detail, now, self._stacks_of(detail.pid, 1))
        self._look_again(now, states)

    def _over(self, pid: int, lasted: float) -> None:
        self.event("stall-over", pid=pid, lasted=round(lasted, 3))
        self.say(f"process {pid} goes on after {duration(lasted)} without progress")
        self.hung = False

    def _look_again(self, now: float, states: list[dict[str, Any]]) -> None:
        for pid, suspect in list(self._suspects.items()):
            state = next((s for s in states if s["pid"] == pid), None)
            if state is None or max(state["since"], state["activity"]) > suspect.suspicion.since + 1e-6:
                del self._suspects[pid]  # it moved meanwhile
            elif now - suspect.first_look >= PAUSE:
                del self._suspects[pid]
                self._second_look(suspect, now)

    def _second_look(self, suspect: _Suspect, now: float) -> None:
        suspicion = suspect.suspicion
        threads = self._stacks_of(suspicion.pid, 2)
        names = [f["function"] for t in threads if t.get("main") for f in t["frames"] if f["user"]]
        patience = LONG_PHASES["validation"]
        if waits_for_a_person(threads, waiting(suspicion.pid)):
            self.watch.not_a_hang(suspicion.pid, now, float("inf"))
        elif long_by_name(names) and now - suspicion.since < patience:
            self.watch.not_a_hang(suspicion.pid, now, patience)
        elif (suspect.threads and threads and not stacks.same_place(suspect.threads, threads)) or (
            now - suspicion.since < BUSY_SHORTEST and self._starved(suspicion.since, now)
        ):
            self.watch.not_a_hang(suspicion.pid, now)
        else:
            self.watch.told(suspicion.pid)
            self._stacks_of_others(suspicion.pid)
            self._told(suspicion, threads, now)

    def _told(self, suspicion: Suspicion, threads: list[dict[str, Any]], now: float) -> None:
        spot = stacks.place_of(threads) or {}
        code = spot.get("code", "")
        self.event(
            "stall",
            pid=suspicion.pid,
            since=suspicion.since,
            phase=suspicion.phase,
            step=suspicion.step,
            limit=round(suspicion.limit, 3),
            learned=suspicion.learned,
            cpu=round(suspicion.cpu, 4),
            same_place=bool(threads),
            code=code,
            **{name: spot[name] for name in ("file", "line", "function") if name in spot},
            **waiting(suspicion.pid),
        )
        at = f" at {Path(spot['file']).name}:{spot['line']}: {code}" if spot else ""
        self.say(f"no progress for {duration(now - suspicion.since)} since step {suspicion.step:,}; it waits{at}")
        self.hung = True

    def _stacks_of(self, pid: int, look: int) -> list[dict[str, Any]]:
        """One process's stacks into the record, by all ways that work; returns those with Python frames."""
        fields: dict[str, Any] = {"pid": pid, "role": self.guests.role(pid), "reason": "stall", "round": look}
        threads = stacks.from_faulthandler(pid, self.guest_dir) if self.guest_dir is not None else []
        if threads:
            self.event("stacks", **fields, via="faulthandler", threads=threads)
        if look == 2 or not threads:
            native, because = stacks.from_py_spy(pid)
            found: dict[str, Any] = {"threads": native} if native else {"failed": because}
            self.event("stacks", **fields, via="py-spy", **found)
            threads = threads or native
        return threads

    def _starved(self, since: float, now: float) -> bool:
        """A tree that wants the CPU at most readings is at work, however little of it other programs leave."""
        seen = [running for m, running in self._running if m >= since + (now - since) / 2]
        return len(seen) >= 3 and sum(seen) > 0.5 * len(seen)

    def _stacks_of_others(self, told: int) -> None:
        """The stacks of data workers and of other ranks too, twice: who waits is rarely the one that is stuck."""
        part = self.guests.role
        others = [pid for pid in sorted(self.guests.armed) if pid != told and part(pid) in ("worker", "trainer")]
        for look in (1, 2):
            for pid in others[:_WORKERS]:
                threads = stacks.from_faulthandler(pid, self.guest_dir) if self.guest_dir is not None else []
                fields: dict[str, Any] = {"pid": pid, "role": part(pid), "reason": "stall", "round": look}
                if look == 2 and part(pid) == "trainer":
                    # A collective shows itself in native frames only.
                    native, _ = stacks.from_py_spy(pid)
                    if native:
                        self.event("stacks", **fields, via="py-spy", threads=native)
                        continue
                if threads:
                    self.event("stacks", **fields, via="faulthandler", threads=threads)
