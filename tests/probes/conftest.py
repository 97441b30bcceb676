"""Real child processes, and recorded trees of /proc and /sys."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def recorded() -> Callable[[str], str]:
    """The path of a recorded tree."""
    return lambda name: str(FIXTURES / name)


@pytest.fixture
def start() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts Python code in a process group of its own, and waits until it has printed a line."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", code],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        process.first_line = process.stdout.readline().strip()  # type: ignore[attr-defined]
        return process

    yield run
    for process in started:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.kill()
        process.communicate()


@pytest.fixture
def until() -> Callable[[Callable[[], object]], object]:
    """Waits for something to become true, for as long as a slow machine may need."""

    def wait(condition: Callable[[], object]) -> object:
        for _ in range(12_000):
            if found := condition():
                return found
            time.sleep(0.05)
        pytest.fail("it never became true")

    return wait
