"""`holter why A --against B` on real pairs: slower loader, other code, batch, threads, and the same twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from tests.conftest import HOLTER

from holter.record import place

LOOP = """
import sys, time
import holter

def load():
    while True:
        time.sleep(WAIT)
        yield 1

def step(x):
    time.sleep(STEP)

for at, x in enumerate(holter.track(load())):
    step(x)
    holter.step(loss=1.0)
    if at == 100:
        break
"""
TORCH = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(64, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(40):
    for (x,) in DataLoader(TensorDataset(torch.zeros(1024, 64)), batch_size=int(sys.argv[1])):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
"""


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """Runs a training under Holter, once for each of its kinds, and compares two of them."""
    folder = tmp_path_factory.mktemp("pairs")
    environ = {**os.environ, "HOLTER_HOME": str(folder / "home")}
    made: dict[object, str] = {}

    def run(text=LOOP, wait="0.005", step="0.04", arguments=(), threads=1, again=False):
        key = (text, wait, step, arguments, threads, again)
        if key not in made:
            script = folder / "train.py"
            script.write_text(text.replace("WAIT", wait).replace("STEP", step))
            command = [*HOLTER, "run", "-q", "--", sys.executable, str(script), *arguments]
            subprocess.run(command, env={**environ, "OMP_NUM_THREADS": str(threads)}, check=True, timeout=600)
            made[key] = place.run_ids(folder / "home")[-1]
        return made[key]

    def compared(run, against):
        words = [*HOLTER, "why", run, "--against", against]
        text, found = (
            subprocess.run([*words, *more], env=environ, capture_output=True, text=True, check=True).stdout
            for more in ((), ("--json",))
        )
        return " ".join(text.split()), json.loads(found)

    run.against = compared
    return run


def test_the_same_run_twice_has_no_change_and_blames_none(train):
    """Whatever the machine was at meanwhile, no line and no setting is named."""
    _text, found = train.against(train(again=True), train())

    assert found["changes"] == []
    assert all(one["changes"] == [] for one in found["explanations"])


def test_a_loader_made_slower_is_found_with_its_line(train):
    """The wait for data is the difference, and the changed line of the loader explains it."""
    text, found = train.against(train(wait="0.25"), train())
    (why,) = found["explanations"]

    assert why["of"] == "phase.data"
    assert why["claim"].endswith("the change at train.py:7 in load is the only change that bears on it")
    assert "- time.sleep(0.005) + time.sleep(0.25)" in text


def test_other_code_in_the_step_is_not_told_as_data(train):
    """The line of the step explains it; the loader is as it was."""
    _text, found = train.against(train(step="0.3"), train())
    (why,) = found["explanations"]

    assert why["of"] != "phase.data"
    assert why["claim"].endswith("the change at train.py:11 in step is the only change that bears on it")


def test_another_batch_and_other_threads_are_changes_with_what_brought_them(train):
    """The argument and the variable, too; whether they make a difference is another matter."""
    pytest.importorskip("torch")
    batch = train.against(train(TORCH, arguments=("64",), threads=2), train(TORCH, arguments=("16",)))[1]
    changes = [(one["kind"], one["against"], one["value"]) for one in batch["changes"]]

    assert {("batch", "16", "64"), ("arguments", "16", "64"), ("threads", "1", "2"), ("variables", "1", "2")} <= {
        *changes
    }
