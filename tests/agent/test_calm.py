"""A run in which nothing goes wrong: every program of `calm/` prints under `holter run` what it prints alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import Holter

PROGRAMS = sorted((Path(__file__).parent / "calm").glob("*.py"))
# What `holter run` is given: nothing of it may show in what a program computes.
OPTIONS: list[tuple[str, ...]] = [(), ("--heal",)]
# One process runs many of them, each in a module of its own: to import torch takes longer than any of them. `modes`
# counts every operation and has one for itself: a loss that jumps from program to program is looked at with some.
GROUPS = [[path for path in PROGRAMS if path.stem == "modes"], [path for path in PROGRAMS if path.stem != "modes"]]
MANY = """
import gc, runpy, sys, warnings
for path in sys.argv[1:]:
    print("program", path, flush=True)
    with warnings.catch_warnings():
        runpy.run_path(path, run_name="__main__")
    gc.enable()
"""


class Printed(NamedTuple):
    """What each program printed, with the records of the runs where there are any."""

    programs: dict[str, list[str]]
    runs: list[Holter]


Ways = dict[tuple[str, ...] | None, Printed]


def is_calm(program: Path, options: tuple[str, ...]) -> bool:
    """A loss that is not finite is healed: that is no calm."""
    return not options or program.stem != "frames"


def by_program(done: subprocess.CompletedProcess[bytes]) -> dict[str, list[str]]:
    """The lines of each program, by its name."""
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, list[str]] = {}
    for line in done.stdout.decode().splitlines():
        if line.startswith("program "):
            found[Path(line).stem] = lines = []
        else:
            lines.append(line)
    return found


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    """All programs alone, watched and with --heal."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("calm")
    script = folder / "many.py"
    script.write_text(MANY)
    found: Ways = {way: Printed({}, []) for way in (None, *OPTIONS)}
    for way, (programs, runs) in found.items():
        for group in GROUPS:
            words = [sys.executable, str(script), *(str(one) for one in group if is_calm(one, way or ()))]
            holter = Holter(folder / f"home-{len(runs)}-{way}", folder)
            if way is None:
                environ = holter.environ()
                done = subprocess.run(words, capture_output=True, timeout=900, env=environ, cwd=folder, check=False)
            else:
                done = holter("run", *way, "--", *words, timeout=900)
                runs.append(holter)
            programs.update(by_program(done))
    yield found
    for one in found.values():
        for holter in one.runs:
            holter.close()


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "watched")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_prints_what_it_prints_alone(printed: Ways, program: Path, options: tuple[str, ...]) -> None:
    """Losses to the last bit, graphs, lists of operations, counts of calls, what is freed and what is not."""
    if not is_calm(program, options):
        pytest.skip("a loss that is not finite is healed: that is no calm")
    alone = printed[None].programs[program.stem]

    assert alone
    assert printed[options].programs[program.stem] == alone


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "watched")
def test_the_agent_was_there_and_made_no_error(printed: Ways, options: tuple[str, ...]) -> None:
    """While the programs ran the adapter of torch was on, and nothing of ours was caught."""
    runs = printed[options].runs

    assert len(runs) == len(GROUPS)
    for holter in runs:
        assert holter.events("guest-error") == []
        assert [event["state"] for event in holter.events("adapter") if event["framework"] == "torch"] == ["on"]
