"""From a command to its exit code: makes the record, starts keeper and command, records, and leaves no trace behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holter.errors import EXIT_HOLTER_FAILED, EXIT_HUNG, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND
from holter.record import environment, place
from holter.record.privacy import mask_command
from holter.record.writer import RecordWriter
from holter.recorder.launch import keeper, oom_score, run_dir, state_dir, streams
from holter.recorder.launch.become import Order, become_plainly
from holter.recorder.launch.run_facts import facts_of_run
from holter.recorder.launch.signals import Signals
from holter.recorder.launch.state_dir import StateDirs
from holter.recorder.launch.terminal import Terminal
from holter.recorder.loop.forecast_hook import Forecast

if TYPE_CHECKING:
    from holter.recorder.loop.recorder import Outcome, Recorder

_SHM_MIN_BYTES = 256 << 20  # of shared memory: a record is at most a fifth of that


@dataclass
class Next:
    """What follows an attempt that has ended: another one with a change, or the end, and why."""

    restart: dict[str, Any] | None = None  # the words of it, as an `intervention`
    environ: dict[str, str] = field(default_factory=dict)
    declined: str = ""
    exit_code: int | None = None  # in place of the command's own


@dataclass
class Attempt:
    """One start of the command, and how it went."""

    number: int
    folder: Path | None = None
    writer: RecordWriter | None = None
    recorder: Recorder | None = None
    outcome: Outcome | None = None
    release_keeper: Callable[[], None] = lambda: None

    @property
    def name(self) -> str | None:
        return self.folder.name if self.folder is not None else None


# Asked with the record's folder once an attempt has ended, under `--heal` alone.
Healer = Callable[[Path], Next]


class Launch:
    def __init__(
        self,
        command: list[str],
        *,
        name: str | None,
        on_hang: str,
        heal: bool = False,
        report: Callable[[str], None],
        forecaster: Callable[[], Forecast] | None = None,
        healer: Healer | None = None,
        resume_args: list[str] | None = None,
        planned: dict[str, str] | None = None,
        lent: dict[str, str] | None = None,
        began: Callable[[Path], None] | None = None,
    ) -> None:
        self.command = command
        self.planned = planned or {}  # what a plan asks of the reflexes, from the first attempt on
        self.lent = lent or {}  # variables that a tool is to know us by, in every attempt
        self.began = began  # told of each attempt's record once it is there
        self.healer = healer
        self.resume_args = resume_args or []
        self.restarted: list[dict[str, Any]] = []  # the words of each restart so far: every record tells all of them
        self.forecaster = forecaster
        self.name = name
        self.on_hang = on_hang
        self.heal = heal
        self.report = report

    def run(self, show: Callable[[Path], None]) -> int:
        """Run the command to its end; `show` is handed the record's folder. Returns the exit code."""
        streams.hold_closed()
        signals = Signals()
        # A parent of ours may have ignored it: then no end is ever told, of the keeper's or, should it be killed, of
        # the command's.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.oom_score_adj = oom_score.own()
        states = state_dir.make() if self.heal and self.healer is not None else None
        try:
            return self._run(show, signals, states)
        finally:
            if states is not None:
                states.clear()

    def _run(self, show: Callable[[Path], None], signals: Signals, states: StateDirs | None) -> int:
        before: Attempt | None = None
        following = Next()
        environ: dict[str, str] = dict(self.planned)
        while True:
            attempt = Attempt(before.number + 1 if before is not None else 1)
            environ.update(following.environ)
            self._start(attempt, signals, states, environ, before)
            outcome = attempt.outcome
            assert outcome is not None
            if outcome.failed:
                return self._could_not_start(outcome.failed)
            following = self._following(attempt, signals)
            if following.restart is None:
                break
            attempt.release_keeper()
            before = attempt
            self.restarted.append({"attempt": attempt.number + 1, "before": before.name, **following.restart})
        if attempt.folder is not None:
            self._show(show, attempt.folder)
        attempt.release_keeper()
        if following.exit_code is not None:
            return following.exit_code
        return EXIT_HUNG if outcome.hung else outcome.exit_code

    def _start(
        self,
        attempt: Attempt,
        signals: Signals,
        states: StateDirs | None,
        changes: dict[str, str],
        before: Attempt | None,
    ) -> None:
        """Run one attempt to its end."""
        folder = attempt.folder = self._make_folder()
        agents = run_dir.make()
        given = streams.prepare()
        terminal = Terminal(given.kinds)
        environ = run_dir.command_environ(agents, folder.name if folder else "", os.environ, self.heal)
        environ.update(self.lent)
        for name in environment.OF_AN_ATTEMPT:  # nothing of this reaches a run that is started within a healed one
            environ.pop(name, None)
        if states is not None:
            environ.update({**states.attempt_environ(attempt.number), **changes})
        command = [*self.command, *(self.resume_args if before is not None else ())]
        order = Order(command, environ, folder, agents, terminal.at_once, signals.before, self.oom_score_adj)
        try:
            started, writer = self._begin(order, given, attempt, before)
        except OSError as error:
            self._forget(folder, agents)
            attempt.folder = before.folder if before is not None else None
            attempt.outcome = self._without_us(order, before, error)
            return
        attempt.release_keeper = started.release
        # From here on the command runs; whatever goes wrong with us is not to cost its exit code.
        try:
            attempt.outcome = self._record(attempt, started, writer, signals, terminal)
        except Exception as error:
            self.report(f"recording has stopped ({type(error).__name__}: {error}). The command goes on")
            known = attempt.recorder.outcome if attempt.recorder is not None else None
            attempt.outcome = known or _only_wait(started)
        terminal.give_back()
        if attempt.outcome.failed:
            self._forget(folder, agents)

    def _begin(
        self, order: Order, given: streams.Streams, attempt: Attempt, before: Attempt | None
    ) -> tuple[keeper.Started, RecordWriter | None]:
        """Start keeper and command; OSError where there is no room for them."""
        for last in (False, True):
            started = keeper.start(order, given)
            # While the keeper gets ready, and before the command begins: from its first moment on its record opens.
            writer = self._make_writer(order, attempt, before)
            try:
                started.begin()
                return started, writer
            except OSError as error:
                started.abandon()
                if last or error.errno != errno.ECHILD:  # one that was killed is tried once more
                    raise
        raise AssertionError

    def _without_us(self, order: Order, before: Attempt | None, error: OSError) -> Outcome:
        """Turn into the command ourselves, which needs no other process; a restart is given up instead."""
        from holter.recorder.loop.recorder import Outcome

        why = error.strerror or str(error)
        if before is not None and before.outcome is not None:
            self.report(f"not started again: no process can be started ({why})")
            return before.outcome
        self.report(f"Holter can't start its own processes ({why}). The command runs, but is not recorded")
        order.environ = dict(os.environ)
        try:
            become_plainly(order)
        except OSError as failure:
            return Outcome(EXIT_NOT_FOUND, failed=failure.errno or errno.ENOEXEC)
        raise AssertionError("what was executed has come back")

    def _record(
        self,
        attempt: Attempt,
        started: keeper.Started,
        writer: RecordWriter | None,
        signals: Signals,
        terminal: Terminal,
    ) -> Outcome:
        """Record one attempt to its end."""
        order, folder = started.order, attempt.folder
        if order.agent_dir is not None:
            run_dir.note_owner(order.agent_dir, started.pid, folder)
        run_dir.clear_abandoned()
        attempt.writer = writer
        if writer is not None:
            writer.event("started", **started.streams.kinds)
            for restart in self.restarted:
                writer.event("intervention", **restart)
            if any(order.environ.get(name) != os.environ.get(name) for name in run_dir.ALLOCATOR):
                writer.event("armed", act="expandable-segments")
            if self.began is not None and folder is not None:
                self.began(folder)
        from holter.recorder.loop.recorder import Recorder

        recorder = attempt.recorder = Recorder(
            writer, order.agent_dir, started, signals, terminal,
            on_hang=self.on_hang, heal=self.heal, report=self.report, forecaster=self.forecaster,
        )  # fmt: skip
        outcome = recorder.run()
        if outcome.failed:
            return outcome
        try:
            recorder.finish()
        except Exception as error:
            self.report(f"the record could not be finished ({type(error).__name__}: {error})")
        return outcome

    def _following(self, attempt: Attempt, signals: Signals) -> Next:
        """Ask what is to be done now that an attempt has ended; what can't be done is in its record."""
        if not self.heal or self.healer is None or attempt.folder is None or attempt.writer is None:
            return Next()
        outcome = attempt.outcome
        if outcome is None or (outcome.exit_code == 0 and not outcome.hung):
            return Next()
        try:
            following = self.healer(attempt.folder)
            if signals.between_attempts():
                return Next()  # whoever sent it wanted the run to end, not the attempt
            if following.declined:
                attempt.writer.event("declined", act="restart", because=following.declined)
                self.report(f"not started again: {following.declined}")
            if following.restart is not None:
                attempt.writer.event("restarted", attempt=attempt.number + 1, **following.restart)
                self.report(f"{following.restart['text']} (attempt {attempt.number + 1})")
            attempt.writer.close()
            return following
        except Exception as error:  # a run that can't be healed is what it was without us
            self.report(f"Holter could not decide whether to start it again ({type(error).__name__}: {error})")
            return Next()

    def _show(self, show: Callable[[Path], None], folder: Path) -> None:
        try:
            show(folder)
        except BrokenPipeError:
            pass
        except Exception as error:  # the run's exit code matters more than our words about it
            self.report(
                f"the verdict could not be shown ({type(error).__name__}: {error}). Try: holter why {folder.name}"
            )

    def _make_folder(self) -> Path | None:
        """The record's folder; when the records can't be written the run goes on, recorded elsewhere or not at all."""
        wanted, why = "its place", ""
        try:
            wanted = str(place.home())
            return _probe(place.new_run(Path(wanted)))
        except OSError as error:
            why = error.strerror or str(error)
        for elsewhere in _elsewhere():
            try:
                folder = _probe(place.new_run(Path(tempfile.mkdtemp(prefix="holter-records-", dir=elsewhere))))
            except OSError:
                continue
            self.report(f"records can't be written to {wanted} ({why}). This run is recorded in {folder}")
            return folder
        self.report(f"records can't be written to {wanted} ({why}). The command runs, but is not recorded")
        return None

    def _make_writer(self, order: Order, attempt: Attempt, before: Attempt | None) -> RecordWriter | None:
        if order.folder is None:
            return None
        writer = RecordWriter(order.folder)
        try:
            facts = self._facts(order)
            if before is not None:
                facts.update(attempt=attempt.number, restart_of=before.name)
            writer.meta(facts)
        except Exception as error:
            why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
            self.report(f"the record can't be written ({why}). The command runs, but is not recorded")
            return None
        return writer

    def _facts(self, order: Order) -> dict[str, Any]:
        assert order.folder is not None
        return {
            **facts_of_run(order.folder, mask_command(list(order.command))),
            "name": self.name,
            "guest_dir": str(order.agent_dir) if order.agent_dir else None,
            "on_hang": self.on_hang,
            "heal": "safe" if self.heal else None,
        }

    def _forget(self, folder: Path | None, agents: Path | None) -> None:
        """A command that never started leaves no record."""
        import shutil

        for path in (folder, agents):
            if path is not None:
                shutil.rmtree(path, ignore_errors=True)

    def _could_not_start(self, number: int) -> int:
        word = self.command[0]
        if number == errno.ENOENT:
            hint = (
                "Say how to run it: holter run -- python " + word if word.endswith(".py") else "Check its name and PATH"
            )
            if os.path.exists(word):
                hint = "Its first line names an interpreter that is not there"
            self._complain(f"{word}: command not found. {hint}")
            return EXIT_NOT_FOUND
        if number in (errno.EACCES, errno.EISDIR, errno.ENOEXEC):
            hint = f"Run it with its interpreter: holter run -- python {word}" if word.endswith(".py") else ""
            self._complain(f"{word} can't be executed: {os.strerror(number)}. {hint}".strip())
            return EXIT_NOT_EXECUTABLE
        self._complain(f"{word} could not be started: {os.strerror(number)}")
        return EXIT_HOLTER_FAILED

    def _complain(self, text: str) -> None:
        try:
            os.write(2, f"holter: {text}\n".encode("utf-8", "replace"))
        except OSError:
            pass


def _only_wait(started: keeper.Started) -> Outcome:
    """Until the keeper has told how the command ended; for when recording itself has failed."""
    from holter.recorder.loop.recorder import Outcome

    outcome = Outcome(EXIT_HOLTER_FAILED)
    buffer = started.heard
    while True:
        *complete, buffer = buffer.split(b"\n")
        for message in map(json.loads, complete):
            if message["k"] == "failed":
                return Outcome(EXIT_NOT_FOUND, failed=int(message["errno"]))
            if message["k"] == "exited":
                outcome = Outcome(int(message["exit_code"]), message.get("signal"))
            if message["k"] == "passed":
                started.passed_on(int(message["relay"]))
            if message["k"] == "drained":
                return outcome
        piece = started.link.recv(65536)
        if not piece:
            return outcome
        buffer += piece


def _elsewhere() -> Iterator[str]:
    """Where a record may lie instead: the temporary folder, or shared memory that is large enough for the run, too."""
    for base in reversed(run_dir.bases()):
        try:
            free = os.statvfs(base)
        except OSError:
            continue
        if base != run_dir.SHARED_MEMORY or free.f_bavail * free.f_frsize >= _SHM_MIN_BYTES:
            yield base


def _probe(folder: Path) -> Path:
    """Make sure that the folder takes more than its own name: a full disk shows itself only when written to."""
    path = folder / ".probe"
    try:
        path.write_bytes(bytes(512 * 1024))
    finally:
        path.unlink(missing_ok=True)
    return folder
