"""Why a Python has no agent in it is told from its command line and its environment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holter.recorder.launch.run_dir import INJECT
from holter.recorder.loop.why_no_agent import flag_that_shuts_out, why_no_agent


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["-S", "x.py"], "-S"),
        (["-I", "x.py"], "-I"),
        (["-E", "x.py"], "-E"),
        (["-IE", "x.py"], "-I"),
        (["-uE", "x.py"], "-E"),
        (["-u", "-S", "-c", "pass"], "-S"),
        (["-X", "importtime", "-E", "x.py"], "-E"),
        (["-Ximporttime", "-E", "x.py"], "-E"),
        (["-W", "ignore", "-I"], "-I"),
        (["-BWignore", "-I"], "-I"),
        (["--check-hash-based-pycs", "always", "-E", "x.py"], "-E"),
        (["-E", "-m", "pkg"], "-E"),
        (["-Ec", "pass"], "-E"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_a_flag_of_the_interpreter_is_named(words: list[str], flag: str) -> None:
    """Alone, in a bunch, and behind options that take a word."""
    assert f"started with {flag}," in flag_that_shuts_out(["python", *words])


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["x.py", "-E"],
        ["-m", "pkg", "-E"],
        ["-mpkg", "-E"],
        ["-c", "print('-E')", "-S"],
        ["-cSIE"],
        ["-u", "x.py", "-I"],
        ["-", "-E"],
        ["-W", "E"],
        ["-X", "S"],
        ["-XIES", "x.py"],
        ["-Wignore::ImportWarning", "x.py"],
        ["--", "x.py"],
    ],
    ids=" ".join,
)
def test_a_flag_of_the_program_is_not_the_interpreters(words: list[str]) -> None:
    """What stands behind the program, or is the value of another option."""
    assert flag_that_shuts_out(["python", *words]) == ""


@pytest.fixture
def sleeper() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.skipif(not Path("/proc").exists(), reason="another process's environment can only be read on Linux")
def test_a_path_that_was_replaced_is_told(sleeper: list[subprocess.Popen[bytes]]) -> None:
    """With our folder in PYTHONPATH it is the interpreter; without it, somebody took it out."""
    reasons = []
    for path in (f"{INJECT}:/x", "/x", None):
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        if path is not None:
            environ["PYTHONPATH"] = path
        sleeper.append(subprocess.Popen(["sleep", "60"], env=environ))
        while not Path(f"/proc/{sleeper[-1].pid}/environ").read_bytes():
            time.sleep(0.01)  # the kernel has not set up the new program yet
        reasons.append(why_no_agent(sleeper[-1].pid, ["python", "x.py"], Path("/x")))

    assert "sitecustomize" in reasons[0]
    assert "PYTHONPATH was replaced" in reasons[1]
    assert "PYTHONPATH was replaced" in reasons[2]


def test_a_process_that_is_gone_has_no_reason() -> None:
    """Nothing is said of it; without a folder for agents that is the reason for all."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()

    assert why_no_agent(process.pid, ["python", "x.py"], Path("/x")) == ""
    assert "no folder" in why_no_agent(process.pid, ["python", "x.py"], None)
