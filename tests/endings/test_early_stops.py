"""Exit code 0 with less than was planned, and stops that were meant."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Holter
from tests.endings.ward import TORCH, Case, as_text

KERAS = """
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
"""
LOADER = (
    TORCH
    + """
from torch.utils.data import DataLoader, TensorDataset

data = DataLoader(TensorDataset(torch.randn(400, 64)), batch_size=8)
"""
)
SICK = {
    "input-exhausted": KERAS
    + """
def batches():
    for _ in range(30):
        yield np.zeros((4, 8)), np.zeros((4, 1))


model.fit(batches(), steps_per_epoch=20, epochs=5, verbose=0)
""",
    "swallowed-error": LOADER
    + """
import traceback

try:
    for epoch in range(5):
        for i, (batch,) in enumerate(data):
            train_step(batch[:, :32] if epoch == 2 and i == 7 else batch)
except Exception:
    traceback.print_exc()
""",
    "exit-called": LOADER
    + """
import sys

for epoch in range(5):
    for i, (batch,) in enumerate(data):
        train_step(batch)
        if epoch == 2 and i == 20:
            sys.exit(0)  # here
""",
}
WELL = {
    "keras-early-stopping": KERAS
    + """
stop = keras.callbacks.EarlyStopping(monitor="loss", patience=2)
model.fit(np.zeros((64, 8)), np.zeros((64, 1)), epochs=50, verbose=0, callbacks=[stop])
""",
    "break-on-patience": LOADER
    + """
best, bad = 0.0, 0
for epoch in range(50):
    for (batch,) in data:
        train_step(batch)
    bad += 1
    if bad == 3:
        break
""",
    "most-steps": LOADER
    + """
done = 0
for epoch in range(50):
    for (batch,) in data:
        train_step(batch)
        done += 1
        if done == 120:
            break
    if done == 120:
        break
""",
    "exit-after-the-last-epoch": LOADER
    + """
import argparse
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=100)
options = parser.parse_args(["--epochs", "3"])
for epoch in range(options.epochs):
    for (batch,) in data:
        train_step(batch)
print("done")
sys.exit(0)
""",
    "handled-error": LOADER
    + """
import traceback

for epoch in range(3):
    for i, (batch,) in enumerate(data):
        try:
            train_step(batch[:, :32] if i == 7 else batch)
        except RuntimeError:
            traceback.print_exc()
            train_step(batch)
""",
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Case]]:
    """Every script, three at a time."""
    folder: Path = tmp_path_factory.mktemp("early")
    cases = {name: Case(folder / name, text) for name, text in {**SICK, **WELL}.items()}
    names = list(cases)
    while names:
        some, names = names[:3], names[3:]
        for one in [cases[name].start() for name in some]:
            one.finish()
    yield cases
    for one in cases.values():
        one.holter.close()


@pytest.mark.parametrize("name", SICK)
def test_a_run_that_stopped_early_says_why(ended: dict[str, Case], name: str) -> None:
    """Exit code 0, but not all that was planned: told as such, with what went by."""
    case = ended[name]

    assert case.code == 0
    assert (case.kind(), case.first()["cause"]) == ("stopped-early", f"early-stop.{name}"), as_text(case)
    assert not case.verdict()["healthy"]


@pytest.mark.parametrize("name", WELL)
def test_a_stop_that_was_meant_is_left_alone(ended: dict[str, Case], name: str) -> None:
    """A run that ended as its script says is completed and healthy, and told in one line."""
    case = ended[name]
    verdict = case.verdict()

    assert (case.kind(), case.illnesses()) == ("completed", []), as_text(case)
    if verdict["healthy"]:
        assert len(case.page().strip().splitlines()) == 1


def test_an_error_that_was_caught_and_only_named_is_told_with_its_line(holter: Holter) -> None:
    """`except Exception as e: print(type(e)); break` ends with 0; the line that raised is known."""
    script = holter.script(
        """
        import torch
        from torch import nn
        model = nn.Linear(8, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for i in range(100):
            try:
                x = torch.randn(4, 8 if i < 20 else 9)
                loss = model(x).pow(2).mean()
                opt.zero_grad(); loss.backward(); opt.step()
            except Exception as e:
                print("stopping:", type(e).__name__)
                break
        """
    )
    holter.run(sys.executable, script)
    verdict = holter.why()

    assert verdict["ending"]["kind"] == "stopped-early"
    assert verdict["findings"][0]["cause"] == "early-stop.swallowed-error"
    assert verdict["findings"][0]["culprit"]["line"] == 9


def test_bad_batches_that_are_skipped_are_no_early_stop(holter: Holter) -> None:
    """The look-alike: errors in single batches are caught, and training goes on to its end."""
    script = holter.script(
        """
        import torch
        from torch import nn
        model = nn.Linear(8, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for i in range(100):
            try:
                x = torch.randn(4, 9 if i % 10 == 3 else 8)
                loss = model(x).pow(2).mean()
                opt.zero_grad(); loss.backward(); opt.step()
            except RuntimeError:
                continue
        """
    )
    holter.run(sys.executable, script)
    verdict = holter.why()

    assert verdict["ending"]["kind"] == "completed"
    assert verdict["healthy"]
