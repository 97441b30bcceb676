"""Every `holter` command that a page shows is run: none is a command line that Holter refuses."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import HOLTER, Holter

ROOT = Path(__file__).parents[1]
MADE = ("messages.md", "rules.md", "record.md")  # from the code, with words that are no commands
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if page.name not in MADE and page.parent.name != "decisions"
]
_LINE = re.compile(r"^(?:    |\s*- (?:run: )?|srun )(?:\w+=\S+ )*(?:kubectl [^|\n]+\| )?(holter .*)$", re.MULTILINE)
_INLINE = re.compile(r"`(?:kubectl [^|`\n]+\| )?(holter [a-z][^`\n]*)`")
# What stands for something else, and what it is here. Longer ones first.
STAND_INS = {
    "COMMAND...": "python train.py", "COMMAND": "python train.py", "RUN...": "r-0042", "RUN": "r-0042",
    "FOLDER": "home/runs/r-0042", "PATH...": "train.py", "TAG...": "slow", "TAG": "slow", "TEXT": "train", "TOOL":
    "tensorboard", "CODE": "HLT103", "LOG": "train.log", "SCRIPT": "train.py", "r-01<Tab>": "r-0042", "src/": ".",
    "notebooks/": ".", "/logs/run7": "logs", "train-48213": "r-0042", "slurm-48213.out": "train.log",
}  # fmt: skip
LIVE = ("serve", "watch", "--watch")  # run until someone ends them
WRONG = 2  # the exit code for a command line that Holter can't follow


def commands_of(page: Path) -> Iterator[str]:
    """Each command once, without what is said beside it."""
    text = page.read_text()
    for shown in [*_LINE.findall(text), *_INLINE.findall(text)]:
        bare = re.split(r"\s{2,}|\s#| > |</", shown)[0].strip()
        bare = re.sub(r"\s(?:also|to|and)\b.*", "", bare)
        words = re.sub(r"\[(?:--[^\]]*|=URL)\]", "", bare).replace("[", "").replace("]", "")
        for name, here in STAND_INS.items():
            words = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", here, words)
        words = " ".join(re.sub(r"\$\w+(?:-\$\w+)*", "name", words).split())
        if words.startswith("holter run") and " -- " not in words:
            continue  # an option's name, no command
        if len(words.split()) > 2 or words.split()[1:] in (["demo"], ["env"], ["ls"], ["why"], ["report"], ["autopsy"]):
            yield words


COMMANDS = sorted({command for page in PAGES for command in commands_of(page)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a reader may have it: a script, a notebook, a log, and a run with the number that the pages use."""
    made = tmp_path_factory.mktemp("pages")
    (made / "train.py").write_text("print('epoch 1/1 loss 0.5')\n")
    (made / "train.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    (made / "train.log").write_text("epoch 1/1 loss 0.5\n")
    holter = Holter(made / "home", made)
    holter.run(sys.executable, "-c", "raise ValueError")
    (made / "home" / "runs" / "r-0001").rename(made / "home" / "runs" / "r-0042")
    (made / "bin").mkdir()
    for name, words in (("python", [sys.executable]), ("holter", HOLTER)):
        program = made / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        program.chmod(0o755)
    return made


def environ_of(folder: Path) -> dict[str, str]:
    found = Holter(folder / "home", folder).environ()
    return {**found, "PATH": f"{folder / 'bin'}:{found['PATH']}", "MPLBACKEND": "agg"}


def test_the_pages_show_commands() -> None:
    """The pattern finds them: also in YAML, in a table and behind a pipe."""
    assert len(COMMANDS) > 45
    assert {"holter autopsy -", "holter check --format github .", "holter env"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_pages_is_one_that_holter_takes(folder: Path, command: str) -> None:
    """Run as it stands, in a folder with a script, a log and a run; no stack trace, and never the code for misuse."""
    words = shlex.split(command)
    if words[1] == "attach":
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]) as process:
            done = run(folder, [word.replace("PID", str(process.pid)) for word in words])
            process.kill()
    elif words[1] in LIVE or "--watch" in words:
        done = look_at(folder, words)
    else:
        done = run(folder, words)
    said = done.stderr.decode(errors="replace")

    assert done.returncode != WRONG or "needs a terminal" in said, said
    assert "Traceback" not in said.replace("Traceback (most recent call last) in", "") or "ValueError" in said, said


def run(folder: Path, words: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        words,
        cwd=folder,
        env=environ_of(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=600,
        check=False,
    )


def look_at(folder: Path, words: list[str]) -> subprocess.CompletedProcess[bytes]:
    """Start it, see that it goes on, and end it as a reader would."""
    with subprocess.Popen(
        words,
        cwd=folder,
        env=environ_of(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        time.sleep(4)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def test_the_job_for_slurm_runs_as_it_stands(folder: Path) -> None:
    """With a stand-in for srun, which starts what it is given; the name holds the job's."""
    page = (ROOT / "docs" / "jobs" / "on-a-cluster.md").read_text()
    script = re.search(r"```bash\n(.*?)```", page, re.DOTALL)
    assert script is not None
    (folder / "job.sh").write_text(textwrap.dedent(script[1]))
    (folder / "bin" / "srun").write_text('#!/bin/sh\nexec "$@"\n')
    (folder / "bin" / "srun").chmod(0o755)
    environ = {**environ_of(folder), "HOME": str(folder), "SLURM_JOB_NAME": "train", "SLURM_JOB_ID": "48213"}
    done = subprocess.run(["bash", "job.sh"], cwd=folder, env=environ, capture_output=True, check=False)
    why = subprocess.run(
        ["holter", "why", "train-48213"],
        cwd=folder, env={**environ, "HOLTER_HOME": str(folder / "holter")}, capture_output=True, check=False,
    )  # fmt: skip
    shutil.rmtree(folder / "holter", ignore_errors=True)

    assert (done.returncode, done.stdout) == (0, b"epoch 1/1 loss 0.5\n")
    assert (why.returncode, b"completed" in why.stdout) == (0, True)
