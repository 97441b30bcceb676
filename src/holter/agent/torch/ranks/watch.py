"""Which collective this rank has come to, and when: so that the rank that the others wait for is known.

A thread of ours wakes twice a second and reads the groups' sequence numbers, a third of a microsecond each, into the
ring, where they outlive a SIGKILL. The Flight Recorder is read in two cases only:
- no collective was begun for some seconds: which one is open, and where does this rank stand (`collectives`);
- at times that all ranks agree on without a word, counted from when they met: when were the last ones begun, and on
  which lines did this rank spend its time meanwhile (`collective-times`). Who is last at the same numbers is late.

It touches no tensor, waits for nobody and asks no device anything.
"""

import _signal as signal  # type: ignore[import-not-found]
import _thread
import functools
import os
import sys
import threading
from time import monotonic, monotonic_ns, process_time, sleep, time_ns

from ....facts.job import job_of
from ....record import ring_format as f
from ...core.user_frame import is_user_file, place, place_of, user_frame
from ...observe.wrap import drop_own_frame, uncounted
from . import flight_recorder
from .bulletins import Bulletins

_EVERY_S = 0.5
_SILENT_S = (4.0, 9.0, 20.0, 45.0, 120.0, 600.0)  # silences after which it is told where the rank stands
_MOST_SILENCES = 200  # told in one process
_TOLD_ENTRIES = 3
_FIRST_TIMES = (8.0, 18.0)  # seconds since the ranks met; then
_TIMES_EVERY = ((600.0, 30.0), (7200.0, 60.0), (float("inf"), 600.0))  # until so many seconds, at multiples of these
_TIMES_FOR_S = 2.0  # seconds in which the rank's lines are counted
_LINES_EVERY_S = 0.037
_MOST_TIMES = 256
_MOST_LINES = 12
_MAX_FRAMES = 30
_SYNCHRONOUS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT")


class RankWatch:
    """Put around `init_process_group`; from there on a thread watches."""

    def __init__(self, agent, torch, beat):
        self.agent = agent
        self.beat = beat
        self.guard = agent.guard
        self.distributed = torch.distributed if torch.distributed.is_available() else None
        self.pid = None  # of the process in which the thread was started
        self.silences = 0
        self.cpu_s = 0.0  # that this process had used when it began its last collective

    def patch(self):
        if self.distributed is None:
            return
        c10d = self.distributed.distributed_c10d
        inner = c10d.init_process_group
        guard = self.guard

        @functools.wraps(inner)
        def init_process_group(*args, **kwargs):
            try:
                self._comes(args, kwargs)
            except Exception as error:
                guard.caught("init_process_group", error)
            try:
                result = inner(*args, **kwargs)
            except BaseException as error:
                drop_own_frame(error)
                raise
            try:
                self._joined()
            except Exception as error:
                guard.caught("init_process_group", error)
            return result

        c10d.init_process_group = self.distributed.init_process_group = uncounted(init_process_group)

    def _comes(self, args, kwargs):
        """Say that this rank is there and waits for the others."""
        known = job_of(os.environ)
        given = dict(zip(("backend", "init_method", "timeout", "world_size", "rank"), args), **kwargs)  # noqa: B905
        facts = {"rank": known.get("rank"), "world": known.get("world")}
        for name, key in (("rank", "rank"), ("world", "world_size")):
            if isinstance(given.get(key), int) and given[key] >= 0:
                facts[name] = given[key]
        self.agent.greet()
        self.agent.answer()
        self.came = monotonic()
        self.agent.say("rank-came", **facts, **place(user_frame(1)))

    def _joined(self):
        distributed = self.distributed
        rank, world = distributed.get_rank(), distributed.get_world_size()
        waited = round(monotonic() - self.came, 3)
        self.agent.say("rank-joined", rank=rank, world=world, backend=str(distributed.get_backend()), waited=waited)
        if world > 1 and self.pid != self.agent.pid:
            self.pid = self.agent.pid
            _thread.start_new_thread(self._watch, (rank, world, self.pid))

    # --- the thread -------------------------------------------------------------------------------------------

    def _watch(self, rank, world, pid):
        own = {getattr(signal, name) for name in _SYNCHRONOUS if hasattr(signal, name)}
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.valid_signals()) - own)
        numbers, since, told = -1, monotonic(), 0
        met, next_times = monotonic(), _FIRST_TIMES[0]
        bulletins = Bulletins(self.distributed, rank, world)
        while self.agent.pid == pid and self.guard.count < 20:
            sleep(_EVERY_S)
            try:
                now = monotonic()
                found = self._numbers()
                if found is None:
                    self.pid = None  # the groups are gone; there may be others later
                    return
                if found != numbers:
                    if told:
                        self._exchange(bulletins, rank, world, {"begun": found})
                    numbers, since, told = found, now, 0
                    self.cpu_s = process_time()
                    self.beat.words[f.W_COLLECTIVE] = numbers
                elif told < len(_SILENT_S) and now - since >= _SILENT_S[told]:
                    told += 1
                    self._exchange(bulletins, rank, world, self._tell_where(rank, world, since, now))
                if now - met >= next_times:
                    next_times = _next_after(now - met)
                    if now - since < _SILENT_S[0]:
                        self._tell_times(rank, world)
            except Exception as error:
                self.guard.caught("ranks", error)

    def _numbers(self):
        """How many collectives were begun in all groups of this rank; None without groups."""
        c10d = self.distributed.distributed_c10d
        if not c10d.is_initialized():
            return None
        found = 0
        for group in list(c10d._world.pg_map):
            try:
                found += group._get_sequence_number_for_group()
            except RuntimeError:
                pass  # a group without collectives yet, or of a backend that does not count
        return found

    def _tell_where(self, rank, world, since, now):
        """Nothing was begun for some seconds: what is open, and where the main thread stands."""
        self.silences += 1
        if self.silences > _MOST_SILENCES:
            return None
        entries = flight_recorder.read()
        rows = [flight_recorder.told(entry) for entry in entries]
        # The first that are open are those that this rank waits in; of the others the last ones say how far it came.
        opened = [row for row in rows if not row["done"]][:_TOLD_ENTRIES]
        kept = [row for row in rows if row["done"]][-_TOLD_ENTRIES:] + opened
        frames = _frames()
        where = next((frame for frame in frames if frame["user"]), {})
        self.agent.say(
            "collectives", rank=rank, world=world, begun=self.beat.words[f.W_COLLECTIVE], since=round(since, 3),
            silent=round(now - since, 1),
            groups=getattr(self.distributed.distributed_c10d._world, "group_count", None), step=self.beat.steps,
            list=kept, frames=frames,
            **{name: where[name] for name in ("file", "line", "function", "code") if name in where},
        )  # fmt: skip
        waits = {name: opened[0][name] for name in ("group", "number", "op", "sizes")} if opened else {}
        # Whether it is at work by itself: then those that wait for it have to have patience.
        waits["cpu"] = round((process_time() - self.cpu_s) / max(now - since, 1e-3), 2)
        waits["phase"] = f.PHASES[self.beat.phase]
        waits["functions"] = " ".join(frame["function"] for frame in frames if frame["user"])[:200]
        line = {name: where[name] for name in ("file", "line", "function", "code") if name in where}
        return dict(waits, begun=self.beat.words[f.W_COLLECTIVE], step=self.beat.steps, stands=True, **line)

    def _exchange(self, bulletins, rank, world, place):
        """Tell the ranks on other machines where this one stands, and take down where they do."""
        if place is None or not bulletins.needed:
            return
        try:
            bulletins.write(**place)
            answer = bulletins.read() if place.get("stands") else None
        except Exception as error:
            # The store went with the rank or the node that held it, or the link is down: each knows only its own.
            because = "the job's store can't be reached: %s" % str(error)[:200]
            self.agent.say("peers", rank=rank, world=world, because=because)
            return
        if answer is not None:
            found, silent = answer
            self.agent.say("peers", rank=rank, world=world, list=found, silent=silent)

    def _tell_times(self, rank, world):
        """When the last collectives were begun here, and the lines on which this rank was seen meanwhile."""
        begun, lines, steps = monotonic(), {}, []
        while monotonic() - begun < _TIMES_FOR_S:
            spot = _user_line()
            lines[spot] = lines.get(spot, 0) + 1
            ended = self.beat.ended
            if not steps or steps[-1][1] != ended:
                steps.append([self.beat.steps, ended])
            sleep(_LINES_EVERY_S)
        entries = flight_recorder.read()[-_MOST_TIMES:]
        if not entries:
            return
        base, offset = _created(entries[0]), time_ns() - monotonic_ns()
        most = sorted((item for item in lines.items() if item[0]), key=lambda item: -item[1])[:_MOST_LINES]
        self.agent.say(
            "collective-times", rank=rank, world=world, base=(base - offset) * 1e-9, looks=sum(lines.values()),
            times=_runs(entries, base), step_ends=[[step, round(ns * 1e-9, 6)] for step, ns in steps[-_MOST_LINES:]],
            list=[dict(place_of(*spot), seen=count) for spot, count in most],
        )  # fmt: skip


def _next_after(passed):
    """The next look at times: the same in all ranks, which met at one moment."""
    first = next((at for at in _FIRST_TIMES if at > passed), None)
    if first is not None:
        return first
    every = next(gap for until, gap in _TIMES_EVERY if passed < until)
    return (passed // every + 1) * every


def _created(entry):
    return int(entry.get("time_created_ns") or 0)


def _runs(entries, base):
    """Of each group's entries that follow each other: group, first number, when it was begun, then the gaps, in µs."""
    runs, last = [], {}
    for entry in entries:
        group, number = flight_recorder.group_of(entry), entry.get("collective_seq_id")
        run, before, at = last.get(group, (None, None, 0))
        now = (_created(entry) - base) // 1000
        if run is not None and number == before + 1:
            run.append(now - at)
        else:
            run = [group, number, now]
            runs.append(run)
        last[group] = (run, number, now)
    return runs


def _main_stack(most):
    """Code and line of the main thread's calls, innermost first; the frames themselves are let go at once."""
    frame, found = sys._current_frames().get(threading.main_thread().ident), []  # type: ignore[arg-type]
    while frame is not None and len(found) < most:
        found.append((frame.f_code, frame.f_lineno or 0))
        frame = frame.f_back
    return found


def _user_line():
    """The main thread's innermost line of the user's, as (file, line, function)."""
    for code, line in _main_stack(_MAX_FRAMES):
        if is_user_file(code.co_filename):
            return code.co_filename, line, code.co_name
    return None


def _frames():
    """The main thread's stack, innermost first, as rows of a record; no file of a library is read for its code."""
    found = []
    for code, line in _main_stack(_MAX_FRAMES):
        if is_user_file(code.co_filename):
            found.append(dict(place_of(code.co_filename, line, code.co_name), user=True))
        else:
            found.append({"file": code.co_filename, "line": line, "function": code.co_name, "user": False})
    return found
