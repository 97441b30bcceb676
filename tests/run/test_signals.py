"""Signals and keys reach the command as a shell user expects, once."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HOLTER, Holter

COUNTS = """
import os, signal, sys, time
seen = []
def note(number, frame):
    seen.append(signal.Signals(number).name)
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"):
    signal.signal(getattr(signal, name), note)
print("ready", flush=True)
until = time.monotonic() + 600
while not seen and time.monotonic() < until:
    time.sleep(0.02)
time.sleep(0.3)
print(" ".join(seen), flush=True)
sys.exit(7)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_a_signal_to_holter_reaches_the_command_once(holter: Holter, name: str) -> None:
    """The command gets the signal exactly once, and its own exit code comes back."""
    process = holter.start("run", "--", sys.executable, holter.script(COUNTS))
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"

    process.send_signal(getattr(signal, name))

    assert process.stdout.readline().decode().split() == [name]
    assert process.wait(600) == 7
    assert holter.events("signal")[0]["sender_pid"] == os.getpid()


def test_the_whole_group_gets_it(holter: Holter) -> None:
    """A shell script's children get SIGTERM too, and none of them is left."""
    script = holter.script("sleep 300 & echo $! ; sleep 301 & echo $! ; echo ready ; wait", "job.sh")
    process = holter.start("run", "--", "bash", script)
    assert process.stdout is not None
    children = [int(process.stdout.readline()) for _ in range(2)]
    assert process.stdout.readline() == b"ready\n"

    process.terminate()

    assert process.wait(600) == 128 + signal.SIGTERM
    for pid in children:
        assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split(")")[1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, 137), (signal.SIGSEGV, 139), (signal.SIGTERM, 143)])
def test_a_command_killed_by_a_signal_gives_128_plus_its_number(holter: Holter, number: int, code: int) -> None:
    """As a shell tells it."""
    done = holter.run(sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(number)})")

    assert done.returncode == code


def test_what_nohup_ignores_stays_ignored(holter: Holter) -> None:
    """Under nohup a hangup harms neither Holter nor the command."""
    script = holter.script(
        """
        import signal, time
        print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, flush=True)
        time.sleep(1)
        print("done", flush=True)
        """
    )
    process = holter.start(
        "run", "-q", "--", sys.executable, script, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"True\n"

    process.send_signal(signal.SIGHUP)

    assert process.stdout.read() == b"done\n"
    assert process.wait(600) == 0


class Screen:
    """A terminal with a job-controlling shell in it."""

    def __init__(self, holter: Holter) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(holter.environ(PS1="$ ", TERM="dumb"))
            os.chdir(holter.folder)
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def wait_for(self, text: str, seconds: float = 600) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            if time.monotonic() > deadline:
                pytest.fail(f"{text!r} was not seen in {self.seen!r}")
            if select.select([self.fd], [], [], 0.1)[0]:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
        self.seen = self.seen.partition(text)[2]

    def close(self) -> None:
        try:
            os.kill(self.pid, signal.SIGKILL)
        finally:
            os.waitpid(self.pid, 0)
            os.close(self.fd)


@pytest.fixture
def screen(holter: Holter) -> Any:
    opened = Screen(holter)
    yield opened
    opened.close()


def _command(script: str) -> str:
    return " ".join([*HOLTER, "run", "--", sys.executable, script])


def test_ctrl_c_interrupts_the_command_once(holter: Holter, screen: Screen) -> None:
    """The key on the terminal is one KeyboardInterrupt in the script, and the shell gets its exit code."""
    script = holter.script(
        """
        import time
        count = 0
        try:
            print("rea" + "dy", flush=True)
            time.sleep(600)
        except KeyboardInterrupt:
            count += 1
        time.sleep(0.3)
        print("interrupted", count, flush=True)
        raise SystemExit(9)
        """
    )
    screen.type(_command(script) + "; echo code=$?\n")
    screen.wait_for("ready")
    screen.type("\x03")

    screen.wait_for("interrupted 1")
    screen.wait_for("code=9")


def test_ctrl_z_stops_and_fg_goes_on(holter: Holter, screen: Screen, wait_for: Callable[..., Any]) -> None:
    """Ctrl-Z gives the shell back and stops the command; fg lets both go on."""
    script = holter.script(
        """
        import os, time
        print("pid", os.getpid(), flush=True)
        print("rea" + "dy", flush=True)
        answer = input("name? ")
        print("hello " + answer, flush=True)
        """
    )
    screen.type(_command(script) + "\n")
    screen.wait_for("pid ")
    screen.wait_for("ready")
    screen.wait_for("name? ")
    screen.type("\x1a")
    screen.wait_for("Stopped")
    screen.type("echo shell is h''ere\n")
    screen.wait_for("shell is here")
    (child,) = [int(line["pid"]) for line in holter.events("spawned")]
    wait_for(lambda: Path(f"/proc/{child}/stat").read_text().split(") ")[1][0] == "T", "the command stops")
    screen.type("fg\n")
    screen.wait_for("holter run")
    wait_for(lambda: Path(f"/proc/{child}/stat").read_text().split(") ")[1][0] != "T", "the command goes on")
    screen.type("you\n")

    screen.wait_for("hello you")


def test_a_closed_terminal_hangs_up_the_command(holter: Holter, wait_for: Callable[..., Any]) -> None:
    """When the terminal closes the command gets its SIGHUP, and nothing is left."""
    screen = Screen(holter)
    script = holter.script("import time; print('rea' + 'dy', flush=True); time.sleep(600)")
    screen.type(_command(script) + "\n")
    screen.wait_for("ready")
    (child,) = [int(line["pid"]) for line in holter.events("spawned")]

    os.close(screen.fd)
    os.waitpid(screen.pid, 0)

    wait_for(lambda: not Path(f"/proc/{child}").exists(), "the command ends")
    wait_for(lambda: holter.events("exited"), "the end is recorded")
    assert holter.events("exited")[0]["signal"] == "SIGHUP"
