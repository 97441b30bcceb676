"""Tab completes commands, options and runs, in every shell that is here."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import HOLTER, Holter


@pytest.fixture
def runs(holter: Holter) -> Holter:
    """Runs 1 to 4: with a name, without one, damaged, and with a name that a shell would take for a command."""
    for number, name in enumerate(("base-1", None, None, "x; touch pwned")):
        folder = holter.record(number + 1)
        folder.mkdir(parents=True)
        facts = {"schema": 1, "id": folder.name, "name": name, "command": ["python", "train.py\x1b[2J\n"]}
        (folder / "record.json").write_text(json.dumps(facts))
    (holter.record(3) / "record.json").write_bytes(b"\x00{")
    return holter


def offered(holter: Holter, words: str, shell: str = "zsh") -> list[str]:
    """What the shell is told: of zsh kind, value and help in three lines."""
    environ = {"_HOLTER_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = holter(env=environ)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode().strip("\n").splitlines()


@pytest.mark.parametrize("command", ["why", "rm", "tag", "note", "rename", "watch", "report"])
def test_runs_are_offered_by_id_and_name(runs: Holter, command: str) -> None:
    """The newest first; a damaged record by its id; with the name, else the command, beside it."""
    assert offered(runs, f"holter {command} ") == [
        "plain", "r-0004", "x; touch pwned",
        "plain", "r-0003", "_",
        "plain", "r-0002", "python train.py�[2J ",
        "plain", "r-0001", "base-1",
        "plain", "base-1", "r-0001",
    ]  # fmt: skip


def test_what_was_typed_is_gone_on_with(runs: Holter) -> None:
    """An id, a name, a command, an option, a choice."""
    assert offered(runs, "holter why r-0002")[1::3] == ["r-0002"]
    assert offered(runs, "holter why ba")[1::3] == ["base-1"]
    assert offered(runs, "holter ren")[1::3] == ["rename"]
    assert offered(runs, "holter why --js")[1::3] == ["--json"]
    assert offered(runs, "holter ls --sort p")[1::3] == ["peak"]


def test_a_path_is_left_to_the_shell(runs: Holter) -> None:
    """RUN may be a record's folder."""
    assert offered(runs, "holter why ./rec") == ["dir", "./rec", "_"]


def test_without_records_nothing_is_offered_and_nothing_said(holter: Holter) -> None:
    """Neither where there are none, nor where the home is no folder."""
    assert offered(holter, "holter why ") == []
    holter.home.write_text("")
    assert offered(holter, "holter why ") == []


def test_a_thousand_runs_do_not_make_the_shell_wait(holter: Holter) -> None:
    """Only the newest are looked at, and one small file of each."""
    for number in range(1, 1001):
        holter.record(number).mkdir(parents=True)
        (holter.record(number) / "record.json").write_text('{"schema": 1}')
    began = time.monotonic()
    found = offered(holter, "holter why ")[1::3]

    assert time.monotonic() - began < 5
    assert (len(found), found[0]) == (200, "r-1000")


@pytest.fixture
def on_path(holter: Holter) -> dict[str, str]:
    """`holter` as a program on PATH."""
    program = holter.folder / "bin" / "holter"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(HOLTER)} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return holter.environ(PATH=f"{program.parent}:{os.environ['PATH']}")


def test_bash_itself_completes_a_run(runs: Holter, on_path: dict[str, str]) -> None:
    """With the line that docs/completion.md gives; a name that is a command to a shell is not run."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    lines = 'eval "$(_HOLTER_COMPLETE=bash_source holter)"; COMP_WORDS=(holter why "$1"); COMP_CWORD=2; '
    lines += '_holter_completion holter; printf "%s\\n" "${COMPREPLY[@]}"'

    def completed(begun: str) -> list[str]:
        done = subprocess.run(
            [bash, "-c", lines, "bash", begun], env=on_path, cwd=runs.folder, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    assert completed("b") == ["base-1"]
    assert completed("r-000") == ["r-0004", "r-0003", "r-0002", "r-0001"]
    assert not Path(runs.folder, "pwned").exists()


@pytest.mark.usefixtures("runs")
def test_fish_itself_completes_a_run(on_path: dict[str, str]) -> None:
    """With the line that docs/completion.md gives."""
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("no fish here")
    lines = '_HOLTER_COMPLETE=fish_source holter | source; complete -C "holter why b"'
    done = subprocess.run([fish, "-c", lines], env=on_path, capture_output=True, text=True, check=True)

    assert done.stdout.split("\t")[0] == "base-1"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_for_a_shell_is_printed(holter: Holter, shell: str) -> None:
    """Where the shell is not here to try it."""
    done = holter(env={"_HOLTER_COMPLETE": f"{shell}_source"})

    assert b"_HOLTER_COMPLETE" in done.stdout
    assert done.returncode == 0
