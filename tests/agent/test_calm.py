"""A run in which nothing goes wrong: every program of `calm/` prints under `holter run` what it prints alone."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Holter

PROGRAMS = sorted((Path(__file__).parent / "calm").glob("*.py"))
# What `holter run` is given: nothing of it may show in what a program computes.
OPTIONS: list[tuple[str, ...]] = [(), ("--heal",)]


@functools.cache
def alone(program: Path) -> tuple[int, str]:
    """What a program prints without Holter."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("HOLTER")}
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120, env=environ)
    assert done.returncode == 0, done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "watched")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_prints_what_it_prints_alone(holter: Holter, program: Path, options: tuple[str, ...]) -> None:
    """Losses to the last bit, graphs, lists of operations, counts of calls, what is freed and what is not."""
    pytest.importorskip("torch")
    if options and program.stem == "frames":
        pytest.skip("a loss that is not finite is healed: that is no calm")
    code, printed = alone(program)
    done = holter("run", *options, "--", sys.executable, str(program))

    assert printed.splitlines() == done.stdout.decode().splitlines()
    assert code == done.returncode
    assert holter.events("guest-error") == []
    assert [event["state"] for event in holter.events("adapter") if event["framework"] == "torch"] == ["on"]
