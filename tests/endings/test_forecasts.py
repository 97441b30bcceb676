"""Real runs that are told of their end while they are on, each in its control group, and runs with no such end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.endings.conftest import Join
from tests.endings.ward import TORCH, Case, as_text

MB = 1_000_000

BY_STEP = (
    TORCH
    + """
kept = []
for step in range(100_000):
    train_step(torch.randn(256, 64), 0.02)
    kept.append(torch.ones(250_000))
"""
)
EPOCHS = (
    TORCH
    + """
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(32 * 40, 64)), batch_size=32)
"""
)
BY_EPOCH = (
    EPOCHS
    + """
snapshots = []
for epoch in range(100):
    for (x,) in loader:
        train_step(x, 0.04)
    snapshots.append(torch.ones(20_000_000))
"""
)
KERAS = """
import os
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np


class Outputs(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.outputs = []

    def on_train_batch_end(self, batch, logs=None):
        self.outputs.append(np.ones((100, 2500)))
        time.sleep(0.03)


x, y = np.random.rand(1024, 64).astype("float32"), np.random.rand(1024, 1).astype("float32")
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(32), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, y, epochs=1000, batch_size=32, verbose=0, callbacks=[Outputs()])
"""
# Growth that comes to an end by itself.
REPLAY = (
    TORCH
    + """
from collections import deque

replay = deque(maxlen=220)
for step in range(600):
    replay.append(torch.ones(250_000))
    train_step(replay[-1][:4096].view(64, 64), 0.02)
"""
)
CACHE = (
    TORCH
    + """
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self):
        self.decoded = {}

    def __len__(self):
        return 32 * 60

    def __getitem__(self, index):
        if index not in self.decoded:
            self.decoded[index] = torch.ones(40_000)
        return self.decoded[index][:64]


loader = DataLoader(Samples(), batch_size=32, shuffle=True)
for epoch in range(4):
    for x in loader:
        train_step(x, 0.06)
"""
)
COLLECTED = (
    TORCH
    + """
import gc

gc.disable()


class Node:
    pass


for step in range(600):
    train_step(torch.randn(256, 64), 0.02)
    node = Node()
    node.itself, node.held = node, torch.ones(250_000)
    if step % 80 == 79:
        gc.collect()
"""
)
LIMITS = {"by-step": 900, "by-epoch": 1000, "keras": 1600, "replay": 900, "cache": 900, "collected": 900}
TEXTS = {
    "by-step": BY_STEP, "by-epoch": BY_EPOCH, "keras": KERAS, "replay": REPLAY, "cache": CACHE, "collected": COLLECTED,
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, memory_cgroup: Callable[[int], Join]) -> Iterator[dict[str, Case]]:
    """Every run, two at a time."""
    folder: Path = tmp_path_factory.mktemp("forecasts")
    cases = {name: Case(folder / name, text) for name, text in TEXTS.items()}
    names = list(cases)
    while names:
        some, names = names[:2], names[2:]
        for name in some:
            cases[name].start(before=memory_cgroup(LIMITS[name] * MB))
        for name in some:
            cases[name].finish()
    yield cases
    for one in cases.values():
        one.holter.close()


def forecasts(case: Case) -> list[dict[str, Any]]:
    return [event for event in case.holter.events("forecast") if event["what"] == "memory"]


@pytest.mark.root
@pytest.mark.parametrize("name", ["by-step", "by-epoch", "keras"])
def test_a_leak_is_told_before_half_of_its_steps(runs: dict[str, Case], name: str) -> None:
    """The step at which memory runs out is told in the first half of the run, within a fifth of the truth."""
    ended_at = runs[name].verdict()["ending"]["at_step"]
    first = next(iter(forecasts(runs[name])), None)

    assert first is not None, as_text(runs[name])
    assert first["at_step"] <= 0.5 * ended_at
    assert first["step"] == pytest.approx(ended_at, rel=0.2)
    assert first["earliest"] <= first["when"] <= first["latest"]


@pytest.mark.root
@pytest.mark.parametrize("name", ["by-step", "by-epoch", "keras"])
def test_what_was_foretold_was_said(runs: dict[str, Case], name: str) -> None:
    """The person at the terminal read it, with the limit and the step, and was not pestered with it."""
    forecast_lines = [line for line in runs[name].err.splitlines() if line.startswith("holter: memory grows ")]

    assert 1 <= len(forecast_lines) <= 2
    assert (
        f"the container's limit of {'1.6 GB' if name == 'keras' else '900 MB' if name == 'by-step' else '1.0 GB'}"
        in (forecast_lines[0])
    )
    assert "at about step " in forecast_lines[0]


@pytest.mark.root
@pytest.mark.parametrize("name", ["by-step", "by-epoch", "keras"])
def test_the_end_is_a_leak(runs: dict[str, Case], name: str) -> None:
    """What was forecast is what happened."""
    first = runs[name].first()

    assert runs[name].kind() == "oom-killed", as_text(runs[name])
    assert (first["cause"].split(".")[0], first["grade"] != "hypothesis") == ("leak", True)
    assert ("per epoch" if name == "by-epoch" else "per step") in first["claim"]


@pytest.mark.root
@pytest.mark.parametrize("name", ["replay", "cache", "collected"])
def test_growth_that_ends_by_itself_is_not_told(runs: dict[str, Case], name: str) -> None:
    """A replay buffer that fills, a cache that fills in the first epoch, garbage that is collected: not a word."""
    verdict = runs[name].verdict()

    assert verdict["ending"]["kind"] == "completed", as_text(runs[name])
    assert forecasts(runs[name]) == []
    assert [
        one for one in verdict["findings"] if one["cause"].startswith("leak") and one["grade"] != "hypothesis"
    ] == []
