"""From a suspicious silence to a stall that is told: two looks at the stacks, with a pause between them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holter.facts.lock_lines import waits_for_another
from holter.recorder.hang.detector import BUSY_SHORTEST, LONG_PHASES, PAUSE, Activity, Suspicion, Watch, long_by_name
from holter.recorder.hang.ranks import STALL_AFTER_S, RankWaits, user_functions
from holter.recorder.hang.waiting import circle, locked, waiting
from holter.recorder.loop.agents import Agents
from holter.recorder.stacks import take
from holter.units import duration

_WORKERS = 16
_CHILDREN = 4
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


# What a thread does for which others may well wait: a transfer, a child process, a batch from another process.
_AT_WORK = re.compile(
    r"/(?:socket|ssl|selectors|subprocess)\.py$|/(?:http|urllib|urllib3|requests|httpx|botocore|fsspec|multiprocessing)/"
)
_LOCKED = re.compile(r"/(?:threading|queue)\.py$")
_NO_CPU = 0.02  # of a core


def stands_at_a_lock(threads: list[dict[str, Any]], cpu: float) -> bool:
    """True when the main thread waits for another one, and none does anything that takes long by nature.

    By the frames alone, where the kernel does not show what each thread waits for.
    """
    main: dict[str, Any] = next((thread for thread in threads if thread.get("main")), {"frames": []})
    frames = main["frames"]
    if cpu >= _NO_CPU or not frames or any(_AT_WORK.search(f["file"]) for t in threads for f in t["frames"]):
        return False
    # A thread in the user's own code that is at no lock will go on by itself: it sleeps, or it computes in C.
    active = [t for t in threads if t is not main and any(f["user"] for f in t["frames"])]
    return _at_a_lock(frames[0]) and all(_at_a_lock(thread["frames"][0]) for thread in active)


def _at_a_lock(frame: dict[str, Any]) -> bool:
    return bool(_LOCKED.search(frame["file"]) or (frame["user"] and waits_for_another(frame.get("code", ""))))


@dataclass
class _Suspect:
    suspicion: Suspicion
    first_look: float
    threads: list[dict[str, Any]]


class Stalls:
    """Asks the watch at every tick, takes stacks when it suspects, and tells what both looks confirm."""

    def __init__(self, agents: Agents, agent_dir: Path | None, event: Event, report: Callable[[str], None]) -> None:
        self.agents = agents
        self.agent_dir = agent_dir
        self.event = event
        self.report = report
        self.watch = Watch()
        self.ranks = RankWaits()
        self.hung = False
        self._stalled_ranks: set[int] = set()
        self._suspects: dict[int, _Suspect] = {}
        self._parents: dict[int, int] = {}
        self._met: dict[int, float] = {}
        self.commands: dict[int, str] = {}  # of Python processes
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
            if any(e.get("state") == "T" and e["pid"] in self.agents.rings for e in processes.get("list", [])):
                self.suspended(now)
                return
            if processes.get("list"):
                self._parents = {e["pid"]: e.get("ppid", 0) for e in processes["list"] if e.get("state") != "Z"}
            self.commands = {pid: command for pid, command in self.commands.items() if pid in self._parents}
            running = any(entry.get("state") == "R" for entry in processes.get("list", []))
            self._running = [*self._running[-_REMEMBERED:], (now, running)]
        for state in states:
            self.ranks.moved(state["pid"], state.get("collective") or 0)
        self._look_at_ranks(now)
        states = [*states, *self._before_training(now)]
        for what, detail in self.watch.observe(now, states, activity):
            if what == "over":
                self._over(*detail)
            elif detail.pid in self._suspects:
                continue
            elif what == "look" and locked(detail.pid, self._parents, self.agent_dir, helpers=True) is False:
                self.watch.not_a_hang(detail.pid, now)  # no stacks are needed to see that
            else:
                self._suspects[detail.pid] = _Suspect(detail, now, self._stacks_of(detail.pid, 1))
        self._look_again(now, states)

    def _before_training(self, now: float) -> list[dict[str, Any]]:
        """Python processes that can be asked for their stacks and have made no step: known by when they were met."""
        bare = [pid for pid in self._parents if pid in self.agents.armed and pid not in self.agents.rings]
        self._met = {pid: self._met.get(pid, now) for pid in bare}
        state = {"phase": "start", "activity": 0.0, "step": 0, "epoch": 0, "planned": 0, "bare": True}
        return [{"pid": pid, "since": met, **state} for pid, met in self._met.items()]

    def _look_at_ranks(self, now: float) -> None:
        """Ranks that have not come, launchers that have not started any, and ranks that will never meet."""
        said, stalled = self.ranks.missing(now, set(self._parents))
        if said:
            self.report(said)
        for pid in self.ranks.not_come(now):
            self._stacks_of(pid, 1)
        for pid in self.ranks.launchers_without_ranks(self.commands, self._parents, now):
            threads = self._stacks_of(pid, 1)
            if any(frame["function"].endswith("next_rendezvous") for one in threads for frame in one["frames"]):
                self.report("torchrun has started no rank: it waits for the other nodes of the job")
                stalled.append((pid, now - STALL_AFTER_S))
        for pid, since in stalled:
            self._stalled_rank(pid, since, "the other ranks have not come", now)
        for pid, since in self.ranks.never_meet(now):
            self._stalled_rank(pid, since, "the ranks wait in collectives that do not fit together", now)

    def _stalled_rank(self, pid: int, since: float, why: str, now: float) -> None:
        if pid in self._stalled_ranks or self.hung:
            return
        self._stalled_ranks.add(pid)
        state = self.agents.states({pid}) or [{"phase": "start", "step": 0}]
        suspicion = Suspicion(pid, since, state[0]["phase"], state[0]["step"], now - since, why, 0.0)
        self._confirmed(suspicion, self._stacks_of(pid, 2), now, [])

    def _over(self, pid: int, lasted: float) -> None:
        self.event("stall-over", pid=pid, lasted=round(lasted, 3))
        self.report(f"process {pid} goes on after {duration(lasted)} without progress")
        self.hung = False

    def _look_again(self, now: float, states: list[dict[str, Any]]) -> None:
        for pid, suspect in list(self._suspects.items()):
            state = next((s for s in states if s["pid"] == pid), None)
            if state is None or max(state["since"], state["activity"]) > suspect.suspicion.since + 1e-6:
                del self._suspects[pid]  # it moved meanwhile
            elif now - suspect.first_look >= PAUSE:
                del self._suspects[pid]
                self._second_look(suspect, now, states)

    def _second_look(self, suspect: _Suspect, now: float, states: list[dict[str, Any]]) -> None:
        suspicion = suspect.suspicion
        threads = self._stacks_of(suspicion.pid, 2)
        names = user_functions(threads)
        # One that waits for a rank which is at something by itself: how long that takes is that one's to say.
        folder = self.agent_dir
        for peer in self.ranks.busy_peers(suspicion.pid) if folder is not None else ():
            names += user_functions(take.from_agent(peer, folder)[0] if folder is not None else [])
            names += [state["phase"] for state in states if state["pid"] == peer]
        away, is_busy = self.ranks.elsewhere(suspicion.pid)
        names += away
        patience = BUSY_SHORTEST if is_busy else LONG_PHASES["validation"]
        together = circle(suspicion.pid, self._parents, self.agent_dir)
        if waits_for_a_person(threads, waiting(suspicion.pid)):
            self.watch.not_a_hang(suspicion.pid, now, float("inf"))
        elif together and self._parents.get(suspicion.pid) in {one["pid"] for one in together} & self.agents.armed:
            self.watch.reported(
                suspicion.pid
            )  # by its parent, which stands in the same circle, at the line that matters
        elif together:
            self._confirmed(suspicion, threads, now, together)
        elif suspicion.early and not self._is_locked(suspicion, threads):
            self.watch.not_a_hang(suspicion.pid, now)
        elif (
            (is_busy or long_by_name(names))
            and now - suspicion.since < patience
            and not self._is_locked(suspicion, threads)
        ):
            self.watch.not_a_hang(suspicion.pid, now, patience)
        elif (suspect.threads and threads and not take.same_place(suspect.threads, threads)) or (
            now - suspicion.since < BUSY_SHORTEST and self._starved(suspicion.since, now)
        ):
            self.watch.not_a_hang(suspicion.pid, now)
        else:
            self._confirmed(suspicion, threads, now, [])

    def _is_locked(self, suspicion: Suspicion, threads: list[dict[str, Any]]) -> bool:
        """True when nothing in the run can end the wait: by what the kernel says, else by the frames."""
        helpers = not any(frame["user"] for one in threads if not one.get("main") for frame in one["frames"])
        known = locked(suspicion.pid, self._parents, self.agent_dir, helpers=helpers)
        return stands_at_a_lock(threads, suspicion.cpu) if known is None else known

    def _confirmed(
        self, suspicion: Suspicion, threads: list[dict[str, Any]], now: float, together: list[dict[str, Any]]
    ) -> None:
        self.watch.reported(suspicion.pid)
        self._stacks_of_others(suspicion.pid)
        spot = take.place_of(threads) or {}
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
            **({"circle": together} if together else {}),
        )
        at = f" at {Path(spot['file']).name}:{spot['line']}: {code}" if spot else ""
        at += self.ranks.who_is_missing(suspicion.pid)
        self.report(f"no progress for {duration(now - suspicion.since)} since step {suspicion.step:,}; it waits{at}")
        self.hung = True

    def _stacks_of(self, pid: int, look: int) -> list[dict[str, Any]]:
        """One process's stacks into the record, by all ways that work; returns those with Python frames."""
        fields: dict[str, Any] = {"pid": pid, "role": self.agents.role(pid), "reason": "stall", "round": look}
        threads, via = take.from_agent(pid, self.agent_dir) if self.agent_dir is not None else ([], "")
        if threads:
            self.event("stacks", **fields, via=via, threads=threads)
        if look == 2 or not threads:
            native, because = take.from_py_spy(pid)
            found: dict[str, Any] = {"threads": native} if native else {"failed": because}
            self.event("stacks", **fields, via="py-spy", **found)
            threads = threads or native
        return threads

    def _starved(self, since: float, now: float) -> bool:
        """A tree that wants the CPU at most readings is at work, however little of it other programs leave."""
        seen = [running for m, running in self._running if m >= since + (now - since) / 2]
        return len(seen) >= 3 and sum(seen) > 0.5 * len(seen)

    def _stacks_of_others(self, reported_pid: int) -> None:
        """The stacks of data workers and of other ranks too, twice: who waits is rarely the one that is stuck."""
        role_of = self.agents.role
        plain = [
            pid
            for pid, above in self._parents.items()
            if above == reported_pid and role_of(pid) not in ("worker", "trainer")
        ]
        for pid in plain[:_CHILDREN]:
            # A child that was forked makes no steps of its own; from outside it can be looked at all the same.
            found, _ = take.from_py_spy(pid, native=False, patience=5.0)
            if found:
                self.event("stacks", pid=pid, role="child", reason="stall", round=2, via="py-spy", threads=found)
        others = [
            pid
            for pid in sorted(self.agents.armed)
            if pid != reported_pid and (role_of(pid) in ("worker", "trainer") or pid in self.ranks.ranks)
        ]
        for look in (1, 2):
            for pid in others[:_WORKERS]:
                threads, via = take.from_agent(pid, self.agent_dir) if self.agent_dir is not None else ([], "")
                fields: dict[str, Any] = {"pid": pid, "role": role_of(pid), "reason": "stall", "round": look}
                if look == 2 and role_of(pid) == "trainer":
                    # A collective shows itself in native frames only.
                    native, _ = take.from_py_spy(pid)
                    if native:
                        self.event("stacks", **fields, via="py-spy", threads=native)
                        continue
                if threads:
                    self.event("stacks", **fields, via=via, threads=threads)
