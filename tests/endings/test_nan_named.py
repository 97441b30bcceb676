"""Real runs whose loss stops being a number: the reason, the line, and silence where nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.endings.ward import Case, as_text

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

START = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.randn(640, 16)
y = x.sum(1, keepdim=True)
"""
LOOP = """
for epoch in range(3):
    for a, b in loader:
        loss = loss_of(model(a), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
MODEL = "model = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.1), nn.ReLU(), nn.Linear(32, 1))\n"
LOADER = "loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)\n"
SMALL = "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)\n"
MSE = "loss_of = nn.functional.mse_loss\n"

SICK = {
    "nan.learning-rate": START + MODEL + LOADER + MSE
    + "optimizer = torch.optim.SGD(model.parameters(), lr=3.0)  # here\n" + LOOP,
    "nan.data": START + "y[321] = float('nan')  # here\n" + MODEL + LOADER + MSE + SMALL + LOOP,
    "nan.precision": START + MODEL + "model = model.half()  # here\nx, y = x.half(), y.half()\n"
    + LOADER + MSE + SMALL + LOOP,
    "nan.math": START + MODEL + LOADER + """
def loss_of(out, target):
    error = (out - target).abs() * (target > -9)
    return torch.log(error * 0).mean()  # here

""" + SMALL + LOOP,
}  # fmt: skip

WELL = (
    START
    + MODEL
    + LOADER
    + MSE
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
best, missing = float("inf"), torch.full((4,), float("nan"))
for epoch in range(3):
    for step, (a, b) in enumerate(loader):
        loss = loss_of(model(a), b * (1e4 if (epoch, step) == (1, 3) else 1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        best = min(best, loss.item())
"""
)


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Case]]:
    folder: Path = tmp_path_factory.mktemp("nan")
    cases = {name: Case(folder / name, text) for name, text in {**SICK, "well": WELL}.items()}
    for case in cases.values():
        case.run()
    yield cases
    for case in cases.values():
        case.holter.close()


@pytest.mark.parametrize("cause", SICK)
def test_the_reason_and_its_line_are_named(ward: dict[str, Case], cause: str) -> None:
    """Each of the four reasons, on the line that is marked."""
    found = ward[cause].first()

    assert found["cause"] == cause, as_text(ward[cause])
    assert found["grade"] != "hypothesis"
    assert found["culprit"]["line"] == ward[cause].line("# here")


def test_the_sample_is_named(ward: dict[str, Case]) -> None:
    """Of 640 samples in random order, the one that is NaN."""
    assert "sample 321 of the dataset" in ward["nan.data"].first()["claim"]


def test_a_spike_that_recovers_and_values_that_are_nan_on_purpose_are_silent(ward: dict[str, Case]) -> None:
    """A loss far above the rest for one step, a best loss that begins at infinity, a tensor of NaN that nobody uses."""
    sure = [one["cause"] for one in ward["well"].verdict()["findings"] if one["grade"] != "hypothesis"]

    assert not [cause for cause in sure if cause.startswith("nan")], as_text(ward["well"])
