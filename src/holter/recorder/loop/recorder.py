"""The recorder: reads probes and agents, writes the record, and sees how the command ends."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holter.errors import EXIT_HOLTER_FAILED, NoData
from holter.probes import probes_here
from holter.probes.probe import Tree
from holter.record import place
from holter.record.gather import gather
from holter.record.privacy import mask_command
from holter.record.writer import RecordWriter
from holter.recorder.hang.stalls import Stalls
from holter.recorder.launch.healing import Healing
from holter.recorder.launch.keeper import Started
from holter.recorder.launch.oom_score import spare
from holter.recorder.launch.signals import Signals
from holter.recorder.launch.streams import readable
from holter.recorder.launch.terminal import Terminal
from holter.recorder.loop.agents import Agents
from holter.recorder.loop.forecast_hook import Forecast, ForecastHook
from holter.recorder.loop.memory_look import EVERY as GLANCE_EVERY
from holter.recorder.loop.memory_look import MemoryLook, resident_here
from holter.recorder.loop.processes import command_of, is_python, lives, parent_of, signal_all, signal_group
from holter.recorder.loop.sampler import Sampler
from holter.recorder.loop.slow_look import SlowLook
from holter.recorder.loop.why_no_agent import why_no_agent
from holter.recorder.platform import here
from holter.recorder.stacks import take

_COSTS_EVERY = 60.0
_GRACE = 10.0  # seconds between asking and forcing
_POLL = 0.1  # seconds between looks for signals, where there is no thread that could wait for them
_SUSPENDED = 3.0  # a gap between the two clocks, or between two ticks, that no load explains
# Linux counts sleep in BOOTTIME and not in MONOTONIC; macOS in MONOTONIC and not in UPTIME_RAW.
_SLEEP_CLOCKS = (("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"), ("CLOCK_MONOTONIC", "CLOCK_UPTIME_RAW"))


@dataclass
class Outcome:
    """How the command ended, as far as the recorder saw."""

    exit_code: int
    signal: str | None = None
    hung: bool = False
    failed: int = 0  # the errno when it could not be started


class Recorder:
    def __init__(
        self,
        writer: RecordWriter | None,
        agent_dir: Path | None,
        started: Started,
        signals: Signals,
        terminal: Terminal,
        *,
        on_hang: str = "report",
        heal: bool = False,
        report: Callable[[str], None] = lambda _text: None,
        forecaster: Callable[[], Forecast] | None = None,
    ) -> None:
        self.writer = writer
        self.agent_dir = agent_dir
        self.started = started
        self.link = started.link
        self.signals = signals
        self.terminal = terminal
        self.on_hang = on_hang
        self.print_to_user = report
        self.offset = time.time() - time.monotonic()
        self.asleep = asleep()
        self.agents = Agents(agent_dir, self.offset, writer.folder if writer is not None else None)
        self.sampler: Sampler | None = None
        self.stalls = Stalls(self.agents, agent_dir, self._event, self._report)
        self.memory_look = MemoryLook(agent_dir, self._event, resident_here())
        self.slow_look = SlowLook(self.agents, agent_dir, self._event)
        self.forecast_hook = ForecastHook(forecaster, self._event, self._report)
        self.healing = Healing(self._report, agent_dir) if heal else None
        self.root = 0
        self.finder: Any = None
        self._final: dict[str, Any] = {}
        self._ending: dict[str, Any] | None = None
        self.known: dict[int, Any] = {}  # pid -> when it began
        self.outcome: Outcome | None = None
        self.drained = False
        self.stopped_for_hang = False
        self._buffer = b""  # of what the keeper tells: a line that is not whole yet
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_w, False)
        self._last_tick = 0.0
        self._next_costs = 0.0
        self._kernel: Any = None
        self._without_agent: dict[int, float] = {}
        self._failures: set[str] = set()

    # --- the loop -----------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Record until the command has ended and its output has come through."""
        self.signals.listen(self._wake)
        self._take_in(self.started.heard)
        while self.root == 0 and self.outcome is None:
            self._listen(5.0)
        next_tick = time.monotonic()
        while not (self.outcome is not None and self.drained):
            now = time.monotonic()
            if now >= next_tick and self.outcome is None:
                self._guarded(self._tick, now)
                pace = self.sampler.pace if self.sampler is not None else 1.0
                next_tick = max(next_tick + pace, now + pace / 2)
            wait = 1.0 if self.outcome is not None else max(0.0, next_tick - time.monotonic())
            if self.stalls.looking:
                wait = min(wait, 0.2)
            if self.outcome is None and self.memory_look.watching:
                wait = min(wait, GLANCE_EVERY)
            if self.outcome is None:
                wait = min(wait, self.slow_look.due(time.monotonic()))
            self._listen(min(wait, 1.0 if self.signals.listening else _POLL))
            self._guarded(self.memory_look.glance, time.monotonic())
            self._guarded(self._slow_glance, time.monotonic())
        return self.outcome

    def _slow_glance(self, now: float) -> None:
        self.slow_look.glance(now, may_ask=self.outcome is None and not self.stalls.looking)

    def _wake(self) -> None:
        try:
            os.write(self._wake_w, b"x")
        except OSError:
            pass

    def _prepare(self) -> None:
        self.finder = here("tree").TreeFinder(self.root)
        self.sampler = Sampler(probes_here())
        kernel = here("kernel_log")
        if kernel is not None:
            try:
                self._kernel = kernel.KernelLog()
            except (NoData, OSError) as error:
                self._event("missing", probe="kernel-log", because=str(error))
        self._next_costs = time.monotonic() + _COSTS_EVERY

    def _listen(self, timeout: float) -> None:
        """Wait for the keeper, a signal or the next tick."""
        ready = readable([self.link.fileno(), self._wake_r], timeout)
        if self._wake_r in ready:
            os.read(self._wake_r, 4096)
        if not self.signals.listening:
            self.signals.poll()
        while not self.signals.seen.empty():
            self._event("signal", **self.signals.seen.get())
        if self.link.fileno() in ready:
            self._hear()

    def _hear(self) -> None:
        try:
            data = self.link.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._keeper_is_gone()
            return
        self._take_in(data)

    def _take_in(self, data: bytes) -> None:
        self._buffer += data
        while b"\n" in self._buffer:
            raw, _, self._buffer = self._buffer.partition(b"\n")
            message = json.loads(raw)
            self._guarded(getattr(self, "_on_" + message["k"], lambda _m: None), message)

    def _keeper_is_gone(self) -> None:
        """Someone killed the keeper: we take its place, so that the output flows on and the end is known."""
        if self.drained:
            return
        self._event("keeper-lost")
        self._buffer = b""
        try:
            self.link = self.started.take_over(self.root, ended=self.outcome is not None, ending=self._ending)
        except (OSError, RuntimeError):  # no thread, no descriptor to be had: all that is left is to wait
            while lives(self.root):
                time.sleep(_POLL)
            self.outcome = self.outcome or Outcome(EXIT_HOLTER_FAILED)
            self.drained = True

    # --- what the keeper tells ----------------------------------------------------------------------------

    def _on_spawned(self, message: dict[str, Any]) -> None:
        self.root = int(message["pid"])
        self.signals.command_is(self.root)
        spare(os.getpid(), parent_of(self.root))
        self._prepare()

    def _on_failed(self, message: dict[str, Any]) -> None:
        self.outcome = Outcome(127, failed=int(message["errno"]))
        self.drained = True

    def _on_stopped(self, message: dict[str, Any]) -> None:
        self._event("stopped", pid=self.root, signal=signal.Signals(int(message["signal"])).name)
        self.terminal.command_stopped(self.root, int(message["signal"]))
        self.stalls.suspended(time.monotonic())

    def _on_continued(self, _message: dict[str, Any]) -> None:
        self._event("continued", pid=self.root)
        self.stalls.suspended(time.monotonic())

    def _on_ending(self, message: dict[str, Any]) -> None:
        """The keeper is about to take note of the end; should it be killed in between, nobody else could ask."""
        self._ending = {name: message[name] for name in ("exit_code", "signal", "core")}

    def _on_exited(self, message: dict[str, Any]) -> None:
        """The command has ended: one last look at everything, before the kernel's counters are gone."""
        code = int(message["exit_code"])
        self.outcome = Outcome(code, message.get("signal"), hung=self.stopped_for_hang)
        self._final = message
        self._guarded(self._last_look, time.monotonic())

    def _on_passed(self, message: dict[str, Any]) -> None:
        """An output is at its end, or nobody reads it any more."""
        self.started.passed_on(int(message["relay"]))

    def _on_drained(self, _message: dict[str, Any]) -> None:
        self.drained = True

    # --- one tick -----------------------------------------------------------------------------------------

    def _guarded(self, act: Callable[[Any], None], what: Any) -> None:
        """What fails is told once for each kind of failure; recording goes on, and so does the run."""
        try:
            act(what)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            if failure not in self._failures:
                self._failures.add(failure)
                self._event("recorder-error", error=failure, trace=traceback.format_exc()[-2000:])

    def _tick(self, now: float) -> None:
        assert self.sampler is not None
        gap = now - self._last_tick if self._last_tick else 0.0
        shift = (time.time() - time.monotonic()) - self.offset
        if gap > _SUSPENDED * max(1.0, self.sampler.pace) or abs(shift) > _SUSPENDED:
            # The machine slept, the clock was set, or we were stopped: silence meanwhile is nobody's fault.
            self._event("gap", monotonic=round(gap, 3), wall=round(gap + shift, 3), **self._slept())
            self.offset = self.agents.offset = time.time() - time.monotonic()
            self.stalls.suspended(now)
        pids = self.finder.find()
        self._notice_processes(pids, now)
        sample, missing = self.sampler.sample(Tree(self.root, pids), now)
        events, timeline = self.agents.drain()
        timeline += self.agents.let_go(set(pids), now)
        states = self.agents.states(set(pids))
        if states:
            sample["guests"] = states
        self._roles(sample)
        line = {"k": "sample", "t": time.time(), "m": now, **sample}
        if self.writer is not None:
            self.writer.timeline([line, *timeline])
            self.writer.events(events)
        for fact in missing:
            self._event("missing", **fact)
        self._kernel_lines()
        if now >= self._next_costs:
            self._next_costs = now + _COSTS_EVERY
            self._event("cost", probes=self.sampler.costs(), **_own_use())
        self.memory_look.sampled(sample, self.agents.armed)
        self._guarded(lambda at: self.slow_look.ticked(at, timeline, sample, events), now)
        if self.healing is not None:
            healing = self.healing
            self._guarded(lambda sampled: healing.look(sampled, events), sample)
        self.stalls.ranks.hear(events)
        self.stalls.look(now, states, sample)
        self._guarded(lambda sampled: self.forecast_hook.look(sampled, timeline, events), line)
        self._last_tick = time.monotonic()  # at its end: taking stacks may take seconds, and is no gap
        if self.stalls.hung and self.on_hang in ("stop", "restart"):
            self.stopped_for_hang = True
            self.stop("hang")

    def _slept(self) -> dict[str, float]:
        before, self.asleep = self.asleep, asleep()
        return {} if before is None or self.asleep is None else {"slept": round(max(0.0, self.asleep - before), 3)}

    def _roles(self, sample: dict[str, Any]) -> None:
        for entry in sample.get("processes", {}).get("list", []):
            role = self.agents.roles.get(entry["pid"])
            if role:
                entry["role"] = role

    def _last_look(self, now: float) -> None:
        """After the end: counters that only now show it, what the agents said last, the kernel's own lines."""
        self.memory_look.finish()
        self.slow_look.finish()
        if self.sampler is not None:
            sample, _ = self.sampler.sample(Tree(self.root, self.finder.find()), now, last=True)
            self._drain_agents()
            # The header of each ring has the exact number of steps, also of those that no slot was written for.
            sample["guests"] = self.agents.last_states()
            if self.writer is not None:
                self.writer.timeline([{"k": "sample", "t": time.time(), "m": now, "after": True, **sample}])
        self._kernel_lines()

    def _drain_agents(self) -> None:
        events, timeline = self.agents.drain()
        if self.writer is not None:
            self.writer.timeline(timeline)
            self.writer.events(events)
        if self.healing is not None:
            self._guarded(self.healing.report_acts, events)

    def _kernel_lines(self) -> None:
        if self._kernel is None:
            return
        try:
            found = self._kernel.drain()
        except (NoData, OSError):
            return
        for entry in found:
            self._event("kernel", **{k: v for k, v in entry.items() if k not in ("k", "t", "m")})

    def _notice_processes(self, pids: list[int], now: float) -> None:
        starts = self.finder.starts
        for pid in [pid for pid, start in self.known.items() if starts.get(pid) != start]:
            self._event("process-gone", pid=pid, role=self.agents.role(pid))
            del self.known[pid]
            self._without_agent.pop(pid, None)
        for pid in pids:
            if pid not in self.known:
                command = command_of(pid)
                python = is_python(pid, command)
                self.known[pid] = starts.get(pid)
                self._event("process", pid=pid, ppid=parent_of(pid), command=mask_command(command)[:60], python=python)
                if python:
                    self._without_agent[pid] = now
                    self.stalls.commands[pid] = " ".join(command[:12])
        for pid, since in list(self._without_agent.items()):
            if pid in self.agents.armed:
                del self._without_agent[pid]
            elif now - since > 3.0:
                del self._without_agent[pid]
                because = why_no_agent(pid, command_of(pid), self.agent_dir)
                if because:
                    self._event("no-guest", pid=pid, because=because)

    # --- ending -------------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """End the command's group: ask first, then force."""
        pids = list(self.known)
        self._event("stopping", reason=reason, pids=pids)
        signal_group(self.root, signal.SIGTERM)
        signal_group(self.root, signal.SIGCONT)
        deadline = time.monotonic() + _GRACE
        while self.outcome is None and time.monotonic() < deadline:
            self._listen(0.2)
        self.sweep(force=True)
        while self.outcome is None:
            self._listen(0.5)

    def sweep(self, *, force: bool = False) -> None:
        """End what the command left behind."""
        left_behind = [pid for pid in self.finder.find() if lives(pid)] if self.finder is not None else []
        if left_behind and not force:
            signal_all(left_behind, signal.SIGTERM)
            deadline = time.monotonic() + 3.0
            while any(lives(pid) for pid in left_behind) and time.monotonic() < deadline:
                time.sleep(0.05)
        signal_all([pid for pid in left_behind if lives(pid)], signal.SIGKILL)

    def finish(self) -> None:
        """Write the end and bring the agents' files home."""
        assert self.outcome is not None
        if self.outcome.signal or self.outcome.hung or self._was_interrupted():
            self.sweep()
        if self.writer is None:
            if self.agent_dir is not None:
                shutil.rmtree(self.agent_dir, ignore_errors=True)
            return
        self._drain_agents()
        if self.agent_dir is not None:
            gather(self.agent_dir, self.writer.folder)
        self._fatal_stacks()
        if self.writer.dropped:
            self._event("dropped", count=self.writer.dropped, because=self.writer.problem)
        names = ("exit_code", "signal", "core", "cpu_s", "maxrss")
        fields = {name: self._final[name] for name in names if name in self._final}
        if self.sampler is not None:
            self._event("cost", probes=self.sampler.costs(), **_own_use())
        self._event("end", **fields, hung=self.outcome.hung)
        self.writer.close()

    def _was_interrupted(self) -> bool:
        return self.outcome is not None and self.outcome.exit_code == 130

    def _fatal_stacks(self) -> None:
        """What faulthandler wrote when the process crashed."""
        if self.writer is None:
            return
        for path in sorted((self.writer.folder / place.STACKS).glob("*.txt")):
            text = path.read_text(errors="replace")[-(1 << 20) :]
            at = text.rfind("Fatal Python error")
            if at >= 0:
                threads = take.parse(text[at:])
                for thread in threads:
                    thread["main"] = thread["current"]
                head = text[at:].splitlines()[0]
                digits = path.name.partition(".")[0]
                pid = int(digits) if digits.isdigit() else 0
                self._event(
                    "stacks", pid=pid, role=self.agents.role(pid), reason="fatal", round=1, via="faulthandler",
                    head=head, threads=threads,
                )  # fmt: skip

    def _event(self, kind: str, /, **fields: Any) -> None:
        if self.writer is not None:
            self.writer.event(kind, **fields)

    def _report(self, text: str) -> None:
        self._event("said", text=text)
        self.print_to_user(text)


def _own_use() -> dict[str, Any]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    rss = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"cpu_s": round(usage.ru_utime + usage.ru_stime, 4), "rss": rss}


def asleep() -> float | None:
    """Seconds of sleep since the machine was started; None where no pair of clocks tells."""
    for through, awake in _SLEEP_CLOCKS:
        if hasattr(time, through) and hasattr(time, awake):
            try:
                return time.clock_gettime(getattr(time, through)) - time.clock_gettime(getattr(time, awake))
            except OSError:
                continue
    return None
