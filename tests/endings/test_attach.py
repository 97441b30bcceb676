"""`holter attach` on processes that nobody watched before, and `holter demo`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import Holter

BLOCKED = """
import queue
import sys


def consume(batches):
    return batches.get()  # here


open(sys.argv[1], "w").close()
consume(queue.Queue())
"""
BUSY = """
import sys


def crunch():
    total = 0
    for i in range(10**12):
        total += i * i
    return total


open(sys.argv[1], "w").close()
crunch()
"""


@dataclass
class Look:
    """What `holter attach` said of a process, and whether that lived on."""

    document: dict[str, Any]
    code: int
    lives: bool


@dataclass
class Demo:
    """What `holter demo` wrote, and its exit code."""

    output: str
    code: int


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Demo]]:
    """The demo, started before all else; called when its end is of interest."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "work").mkdir()
    holter = Holter(folder / "home", folder / "work")
    process = holter.start("demo")

    def end() -> Demo:
        _, err = process.communicate(timeout=600)
        return Demo(err.decode(), process.returncode)

    yield end
    holter.close()


@pytest.fixture(scope="module")
def looks(
    tmp_path_factory: pytest.TempPathFactory, demo: Callable[[], Demo], wait_for: Callable[..., object]
) -> Iterator[dict[str, Look]]:
    """Four processes outside of Holter, and a look at all of them at once, while the demo runs."""
    assert demo
    folder = tmp_path_factory.mktemp("attach")
    (folder / "work").mkdir()
    holter = Holter(folder / "home", folder / "work")
    blocked, busy = holter.script(BLOCKED, "consumer.py"), holter.script(BUSY, "crunch.py")
    words = {
        "blocked": [sys.executable, blocked, f"{folder}/blocked"],
        "behind-a-shell": ["sh", "-c", f"{sys.executable} {blocked} {folder}/behind-a-shell; true"],
        "busy": [sys.executable, busy, f"{folder}/busy"],
        "no-python": ["sleep", "300"],
    }
    started = {name: subprocess.Popen(some, start_new_session=True) for name, some in words.items()}
    for name in ("blocked", "behind-a-shell", "busy"):
        wait_for((folder / name).exists, f"the start of {name}")
    asked = {name: holter.start("attach", str(process.pid), "--json") for name, process in started.items()}
    found = {}
    for name, process in asked.items():
        out, _ = process.communicate(timeout=600)
        found[name] = Look(json.loads(out), process.returncode, started[name].poll() is None)
    yield found
    for process in started.values():
        subprocess.run(["kill", "-9", "--", f"-{process.pid}"], stderr=subprocess.DEVNULL, check=False)
        process.wait(600)


@pytest.mark.parametrize("name", ["blocked", "behind-a-shell", "busy", "no-python"])
def test_attach_gives_a_verdict_and_does_no_harm(looks: dict[str, Look], name: str) -> None:
    """Exit code 0, and the process goes on."""
    assert looks[name].code == 0
    assert looks[name].lives


@pytest.mark.parametrize("name", ["blocked", "behind-a-shell"])
def test_a_blocked_process_says_where(looks: dict[str, Look], name: str) -> None:
    """The line it waits at, also when the pid is that of the shell around it."""
    document = looks[name].document

    assert document["ending"]["kind"] == "hung"
    assert document["findings"][0]["culprit"]["line"] == 7
    assert document["findings"][0]["grade"] == "supported"


def test_a_busy_process_is_running_and_says_at_what(looks: dict[str, Look]) -> None:
    """No stall is made of work; where it was last seen is told."""
    document = looks["busy"].document

    assert (document["ending"]["kind"], document["findings"]) == ("running", [])
    assert "in crunch" in document["ending"]["claim"]


def test_what_is_no_python_is_told_by_what_the_kernel_shows(looks: dict[str, Look]) -> None:
    """Of another program there is no line, and nothing is called sure."""
    document = looks["no-python"].document

    assert document["findings"][0]["grade"] == "hypothesis"
    assert "no Python program" in document["ending"]["claim"]


def test_a_process_that_never_was(holter: Holter) -> None:
    """A clear word and exit code 5."""
    done = holter("attach", "4194303")

    assert done.returncode == 5
    assert b"there is no process 4194303" in done.stderr


def test_the_demo_ends_with_a_verdict(demo: Callable[[], Demo]) -> None:
    """Without a framework, with exit code 0."""
    done = demo()

    assert done.code == 0
    assert "hang.deadlock" in done.output
    assert "with LOCK:" in done.output
