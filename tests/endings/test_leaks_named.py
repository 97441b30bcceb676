"""Real leaks in a real container: the holder, its line and the cure; and a buffer with a bound, which is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.endings.conftest import Join
from tests.endings.ward import Case, as_text

pytest.importorskip("torch")
MB = 1_000_000
HEAD = """
import time
import numpy as np
import torch
from collections import deque
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train_step(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    time.sleep(0.02)
    return loss

"""
GRAPH = (
    HEAD
    + """
class Trainer:
    def __init__(self):
        self.history = {"loss": []}

    def fit(self):
        while True:
            loss = train_step(torch.ones(512, 64))
            self.history["loss"].append(loss)


Trainer().fit()
"""
)
CACHE = (
    HEAD
    + """
class Images(Dataset):
    def __init__(self):
        self.decoded = {}

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if index not in self.decoded:
            self.decoded[index] = np.ones((100, 1000), dtype="float32")
        return torch.ones(64)


if __name__ == "__main__":
    for x in DataLoader(Images(), batch_size=4, num_workers=1, multiprocessing_context="fork"):
        train_step(x)
"""
)
MODELS = (
    HEAD
    + """
def build():
    return nn.Sequential(nn.Linear(64, 20_000), nn.ReLU(), nn.Linear(20_000, 64))


models = []
for trial in range(1000):
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(10):
        train_step(torch.ones(8, 64))
    models.append(model)
"""
)
WINDOWS = (
    HEAD
    + """
net, head = nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 64)
optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()])
x, state = torch.randn(32, 20, 64), None
for window in range(10_000):
    out, state = net(x, state)
    loss = (head(out) - x).pow(2).mean()
    loss.backward(retain_graph=True)
    if window > 9_000:
        optimizer.step()
"""
)
BY_HAND = (
    HEAD.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.01)", "kept = []")
    + """
for step in range(10_000):
    loss = model(torch.ones(512, 64)).pow(2).mean()
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight -= 0.01 * weight.grad
    time.sleep(0.02)
    kept.append(model(torch.ones(512, 64)).mean())
"""
)
BOUNDED = (
    HEAD
    + """
replay = deque(maxlen=100)
for step in range(300):
    train_step(torch.ones(8, 64))
    replay.append(np.ones(250_000))
"""
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, memory_cgroup: Callable[[int], Join]) -> Iterator[dict[str, Case]]:
    """Every run in a container of its own, two at a time."""
    folder: Path = tmp_path_factory.mktemp("leaks")
    texts = {"graph": GRAPH, "cache": CACHE, "models": MODELS, "bounded": BOUNDED,
             "windows": WINDOWS, "by-hand": BY_HAND}  # fmt: skip
    cases = {name: Case(folder / name, text) for name, text in texts.items()}
    names = list(cases)
    for some in (names[:2], names[2:4], names[4:]):
        for name in some:
            cases[name].start(before=memory_cgroup(900 * MB))
        for name in some:
            cases[name].finish()
    yield cases
    for one in cases.values():
        one.holter.close()


@pytest.mark.root
@pytest.mark.parametrize(
    ("name", "cause", "mark"),
    [
        ("graph", "leak.graph-retained", 'self.history["loss"].append(loss)'),
        ("cache", "leak.cache-unbounded", "self.decoded[index] ="),
        ("models", "leak.model-rebuilt", "model = build()"),
        ("windows", "leak.graph-retained", "out, state = net(x, state)"),
        ("by-hand", "leak.graph-retained", "kept.append"),
    ],
)
def test_a_leak_is_named_with_its_line(runs: dict[str, Case], name: str, cause: str, mark: str) -> None:
    """The cause, the line of the script and a cure, established by what the holder was weighed at."""
    one = runs[name]
    first = one.first()

    assert one.kind() == "oom-killed", as_text(one)
    assert (first["cause"], first["grade"]) == (cause, "established"), as_text(one)
    assert first["culprit"]["line"] == one.line(mark)
    assert first["cures"]
    assert one.holter.events("guest-error") == [] or name == "cache"  # there the loader raises while it is killed


@pytest.mark.root
def test_growth_within_one_step_is_told_by_its_backwards(runs: dict[str, Case]) -> None:
    """The state is cut where it is used: what the step computes of it keeps its gradient."""
    first = runs["windows"].first()

    assert "per backward within step 1" in first["claim"]
    (cure,) = first["cures"]
    assert cure["how"].splitlines()[1] == (
        "+ out, state = net(x, None if state is None else tuple(part.detach() for part in state))"
    )


@pytest.mark.root
def test_the_cure_of_a_kept_loss_is_its_own_line(runs: dict[str, Case]) -> None:
    """The cure is a diff of the line that keeps the loss."""
    how = runs["graph"].first()["cures"][0]["how"]

    assert how == '- self.history["loss"].append(loss)\n+ self.history["loss"].append(loss.item())'


@pytest.mark.root
def test_a_buffer_that_fills_up_to_its_bound_is_healthy(runs: dict[str, Case]) -> None:
    """A deque of a hundred arrays holds 200 MB and no more: there is nothing to tell."""
    assert runs["bounded"].kind() == "completed", as_text(runs["bounded"])
    assert [f for f in runs["bounded"].verdict()["findings"] if f["cause"].startswith("leak")] == []
