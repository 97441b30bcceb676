"""One patient's stay: started within its limits, under Holter or bare, watched to its end."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.score.errors import CannotBeMade
from tests.score.patient import Patient
from tests.score.surroundings import Surroundings, remount, surroundings

_LOOK = 0.2  # seconds between two looks at the processes
_IDLE = 12.0  # seconds without CPU time that make a bare run a hung one


class Stopped(Exception):
    """Whoever started the runs wants no more of them."""


@dataclass
class Stay:
    """What was seen of a run from outside."""

    patient: Patient
    folder: Path
    exit_code: int | None = None
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak: int = 0
    curve: list[int] = field(default_factory=list)
    oom_kills: int = 0
    idle: bool = False
    overran: bool = False
    skipped: str = ""

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def ending(self) -> str:
        """How a bare run ended, in the words of the verdict; `stopped-early` can't be told from `completed`."""
        if self.idle or self.overran:
            return "hung" if self.idle else "overran"
        code = self.exit_code or 0
        number = -code if code < 0 else code - 128 if code > 128 else 0
        if number == signal.SIGKILL:
            return "oom-killed" if self.oom_kills else "killed"
        if number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE):
            return "crashed"
        if number == signal.SIGINT:
            return "interrupted"
        if number or code == 124:
            return "killed"
        return "exception" if code else "completed"


def attend(
    patient: Patient, folder: Path, *, bare: bool, stop: threading.Event, beside: int = 0, heal: bool = False
) -> Stay:
    """Run a patient in a folder of its own and come back with what was seen; what it left running is ended.

    With others `beside` it, its frameworks compute with fewer threads: they would spin for cores that are taken.
    """
    stay = Stay(patient, folder)
    shutil.rmtree(folder, ignore_errors=True)
    work, own = folder / "work", folder / "tmp"
    for each in (work, own, stay.home):
        each.mkdir(parents=True)
    script = Path(shutil.copy(patient.script, work))
    try:
        if patient.gpu and not Path("/dev/nvidiactl").exists():
            raise CannotBeMade("there is no NVIDIA GPU here")
        with surroundings(patient, folder) as around:
            environ = _environ(around, own, stay.home)
            if beside:
                environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // (beside + 1))))
            if patient.prepare:
                _prepare(patient, script, environ, around)
            _watch(stay, _start(patient, script, environ, around, bare=bare, heal=heal), around, bare=bare, stop=stop)
    except CannotBeMade as error:
        stay.skipped = str(error)
    finally:
        shutil.rmtree(own, ignore_errors=True)
    return stay


def _environ(around: Surroundings, own: Path, home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLTER")}
    return {**kept, **around.environ, "HOLTER_HOME": str(home), "TMPDIR": str(own)}


def _words(words: list[str], script: Path) -> list[str]:
    return [word.format(python=sys.executable, script=script) for word in words]


def _prepare(patient: Patient, script: Path, environ: dict[str, str], around: Surroundings) -> None:
    """What the user did once before training, such as fetching the data; nothing of it stays in memory."""
    done = subprocess.run(
        _words(patient.prepare, script), env=environ, cwd=script.parent, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CannotBeMade(f"the preparation failed: {done.stderr.strip()[-300:]}")
    if around.disk:
        remount(around.disk)


def _start(
    patient: Patient, script: Path, environ: dict[str, str], around: Surroundings, *, bare: bool, heal: bool
) -> subprocess.Popen[bytes]:
    command = _words(patient.command, script)
    if not bare:
        options = ["--on-hang", patient.on_hang] if patient.on_hang else []
        options += ["--heal"] if heal else []
        command = [sys.executable, "-m", "holter", "run", *options, "--", *command]
    command = [*around.prefix, *command]
    if patient.hangup_s:
        return _start_on_terminal(patient.hangup_s, command, environ, script.parent)
    with (script.parent.parent / "out").open("wb") as out, (script.parent.parent / "err").open("wb") as err:
        return subprocess.Popen(
            command, env=environ, cwd=script.parent, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True,
        )  # fmt: skip


def _start_on_terminal(
    seconds: float, command: list[str], environ: dict[str, str], work: Path
) -> subprocess.Popen[bytes]:
    """Start it on a terminal of its own that is closed after a while, as when a window is closed or ssh breaks off."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", *command], env=environ, cwd=work, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)

    def hold() -> None:
        deadline = time.monotonic() + seconds
        os.set_blocking(master, False)
        while time.monotonic() < deadline and process.poll() is None:
            try:
                os.read(master, 65536)
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:
                break
        os.close(master)

    threading.Thread(target=hold, daemon=True).start()
    return process


def _watch(
    stay: Stay, process: subprocess.Popen[bytes], around: Surroundings, *, bare: bool, stop: threading.Event
) -> None:
    """Look at it until it ends, and do to it what its sidecar says."""
    patient, began = stay.patient, time.monotonic()
    busy_at, cpu_then, due = began, 0.0, 1.0
    to_interrupt, to_signal = patient.interrupt_s, dict(patient.signal or {})
    try:
        while process.poll() is None:
            passed = time.monotonic() - began
            rss, cpu = _tree(process.pid)
            stay.peak, stay.cpu_s = max(stay.peak, rss), max(stay.cpu_s, cpu)
            if passed >= due:
                stay.curve.append(rss)
                due += 1.0
            if abs(cpu - cpu_then) > 0.05:
                busy_at, cpu_then = time.monotonic(), cpu
            if to_interrupt is not None and passed >= to_interrupt:
                to_interrupt = None
                _signal_group(process.pid, signal.SIGINT)
            if to_signal and passed >= to_signal["after_s"]:
                _send(stay, process.pid, to_signal, bare=bare)
                to_signal = {}
            if bare and "hung" in patient.endings and time.monotonic() - busy_at > _IDLE:
                stay.idle = True
                break
            if passed > patient.timeout_s:
                stay.overran = True
                break
            if stop.wait(_LOOK):
                raise Stopped
    finally:
        stay.seconds = time.monotonic() - began
        _end(process)
        stay.exit_code = process.returncode
        if around.group:
            stay.oom_kills = around.group.oom_kills
            around.group.end_all()


def _tree(pid: int) -> tuple[int, float]:
    """Resident memory and CPU seconds of a process and all below it."""
    rss, cpu = 0, 0.0
    try:
        root = psutil.Process(pid)
        for each in (root, *root.children(recursive=True)):
            try:
                rss += each.memory_info().rss
                times = each.cpu_times()
                cpu += times.user + times.system
            except psutil.Error:
                continue
    except psutil.Error:
        pass
    return rss, cpu


def _send(stay: Stay, pid: int, order: dict[str, object], *, bare: bool) -> None:
    """Send a signal to the command itself, as `kill` and schedulers do, or to its whole group."""
    number = signal.Signals[str(order["name"])]
    if order.get("to", "command") == "group":
        _signal_group(pid, number)
        return
    target = pid if bare else _command_pid(stay.home)
    if target:
        os.kill(target, number)


def _command_pid(home: Path) -> int | None:
    for path in home.glob("runs/*/keeper.jsonl"):
        for line in path.read_text().splitlines():
            told = json.loads(line)
            if told.get("k") == "spawned":
                return int(told["pid"])
    return None


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it, gently and then for good."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        _signal_group(process.pid, number)
        try:
            process.wait(8)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
