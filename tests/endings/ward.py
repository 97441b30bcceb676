"""Runs with a real fault, several at a time: each with a home of its own, its output, its verdict and its record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.claims import contradictions
from tests.conftest import HOLTER, Holter

# The start of an ordinary script: a small model, an optimizer and one step of training.
TORCH = """
import time
import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train_step(batch, pause=0.0):
    loss = model(batch).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(pause)
    return loss.item()

"""


class Case:
    """One run from its start to its verdict."""

    def __init__(self, folder: Path, text: str, name: str = "train.py") -> None:
        work = folder / "work"
        work.mkdir(parents=True)
        self.holter = Holter(folder / "home", work)
        self.script = self.holter.script(text, name)
        self.text = Path(self.script).read_text()
        self.process: subprocess.Popen[bytes] | None = None
        self.code, self.out, self.err = 0, "", ""
        self._verdict: dict[str, Any] | None = None

    def start(
        self,
        words: Sequence[str] = (),
        options: Sequence[str] = (),
        prefix: Sequence[str] = (),
        before: Callable[[], None] | None = None,
    ) -> Case:
        """Start `holter run` on the script, or on other words; `before` is called in the new process."""
        command = [*prefix, *HOLTER, "run", *options, "--", *(words or [sys.executable, self.script])]
        self.process = subprocess.Popen(
            command, env=self.holter.environ(), cwd=self.holter.folder, preexec_fn=before,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.holter.started.append(self.process)
        return self

    def finish(self, timeout: float = 900) -> Case:
        assert self.process is not None
        out, err = self.process.communicate(timeout=timeout)
        self.code, self.out, self.err = self.process.returncode, out.decode("utf-8", "replace"), err.decode()
        return self

    def run(self, **how: Any) -> Case:
        return self.start(**how).finish()

    def verdict(self) -> dict[str, Any]:
        """As `holter why --json` gives it; once the run is over, asked for once."""
        if self._verdict is not None:
            return self._verdict
        found = self.holter.why()
        assert not contradictions(found), "a claim says what its own figures contradict"
        if self.process is not None and self.process.returncode is not None:
            self._verdict = found
        return found

    def kind(self) -> str:
        found: str = self.verdict()["ending"]["kind"]
        return found

    def first(self) -> dict[str, Any]:
        """The first finding; an empty one when there is none."""
        return next(iter(self.verdict()["findings"]), {"cause": "", "grade": "", "claim": "", "culprit": None})

    def illnesses(self) -> list[dict[str, Any]]:
        """What is found, but for cores that others took: beside the tests a run may lose them, and is rightly told."""
        return [one for one in self.verdict()["findings"] if one["cause"] != "cpu.starved"]

    def line(self, mark: str) -> int:
        """The number of the script's line that holds a mark."""
        return next(n for n, line in enumerate(self.text.splitlines(), 1) if mark in line)

    def printed(self, word: str) -> float:
        """The number that the script printed after a word."""
        return next(float(line.split()[1]) for line in self.out.splitlines() if line.startswith(word))

    def page(self) -> str:
        """The verdict as a person reads it."""
        return self.err[self.err.rindex(next(mark for mark in ("✗", "✓", "…") if mark in self.err)) :]


def left_of(case: Case) -> list[str]:
    """Command lines of processes that a case left behind: those that still stand in its folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "cwd").startswith(str(case.holter.folder)):
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def as_text(case: Case) -> str:
    """What to show when a test fails."""
    return json.dumps(case.verdict()["ending"]) + "\n" + case.err[-3000:]
