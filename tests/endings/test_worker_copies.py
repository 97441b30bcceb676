"""Data workers in a container: copies of a dataset of Python objects are named at any speed, other memory is not."""

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
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
"""
ROWS = """
class Rows(Dataset):
    def __init__(self, count=350_000):
        self.rows = []
        for i in range(count):
            self.rows.append({"id": i, "x": [float(i + j) for j in range(8)], "y": i * 0.5, "who": f"user-{i}"})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.tensor(self.rows[i]["x"])
"""
SCANNED = ROWS.replace(
    '        return torch.tensor(self.rows[i]["x"])',
    '        if not hasattr(self, "mean"):\n'
    '            self.mean = sum(row["y"] for row in self.rows) / len(self.rows)\n'
    '            self.top = max(max(row["x"]) for row in self.rows)\n'
    '        return torch.tensor(self.rows[i]["x"])',
)
TEXTS = """
class Rows(Dataset):
    def __init__(self):
        self.lines = [" ".join(str(i + j) for j in range(8)) for i in range(1_500_000)]

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        return torch.tensor([float(word) for word in self.lines[i].split()])
"""
OBJECTS = """
class Rows(Dataset):
    def __init__(self):
        self.column = np.empty(400_000, dtype=object)
        for i in range(400_000):
            self.column[i] = [float(i + j) for j in range(8)]

    def __len__(self):
        return len(self.column)

    def __getitem__(self, i):
        return torch.tensor(self.column[i])
"""
ARRAY = """
class Rows(Dataset):
    def __init__(self):
        self.x = np.ones((100_000, 1000), dtype="float32")

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i, :8])
"""
OWN = """
class Rows(Dataset):
    def __init__(self):
        self.table = None

    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        if self.table is None:
            self.table = np.ones(50_000_000)
        return torch.ones(8)
"""
WIDE = """
class Rows(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        return torch.ones(100_000)
"""
TRAIN = """
if __name__ == "__main__":
    data = Rows()
    loader = DataLoader(data, batch_size=128, shuffle=True, {loader})
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for step, x in enumerate(loader):
        loss = model(x[:, :8]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {more}
"""


def script(dataset: str, loader: str, more: str = "") -> str:
    fork = "" if "context" in loader else ', multiprocessing_context="fork"'
    return HEAD + dataset + TRAIN.format(loader=loader + fork, more=more)


RUNS = {
    "fast": (script(ROWS, "num_workers=4"), 800),
    "slow": (script(ROWS.replace("350_000", "150_000"), "num_workers=2", "time.sleep(0.03)"), 480),
    "before the first step": (script(SCANNED, "num_workers=2"), 750),
    "texts": (script(TEXTS, "num_workers=8"), 700),
    "objects": (script(OBJECTS, "num_workers=4"), 560),
    "an array": (script(ARRAY, "num_workers=4", "if step == 300: break"), 1200),
    "arrays of their own": (script(OWN, "num_workers=4"), 1200),
    "started anew": (script(ROWS, 'num_workers=4, multiprocessing_context="spawn"'), 900),
    "batches ahead": (script(WIDE, "num_workers=4, prefetch_factor=16", "time.sleep(0.5)"), 1200),
    "a step too large": (
        script(ROWS.replace("350_000", "20_000"), "num_workers=4",
               "time.sleep(0.03); large = torch.ones(300_000_000) if step == 150 else None"), 1000),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, memory_cgroup: Callable[[int], Join]) -> Iterator[dict[str, Case]]:
    """Every run in a container of its own, two at a time."""
    folder: Path = tmp_path_factory.mktemp("workers")
    cases = {name: Case(folder / name.replace(" ", "-"), text) for name, (text, _) in RUNS.items()}
    names = list(cases)
    while names:
        some, names = names[:2], names[2:]
        for name in some:
            cases[name].start(before=memory_cgroup(RUNS[name][1] * MB))
        for name in some:
            cases[name].finish()
    yield cases
    for one in cases.values():
        one.holter.close()


@pytest.mark.root
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("fast", "self.rows.append("),
        ("slow", "self.rows.append("),
        ("before the first step", "self.rows.append("),
        ("texts", "self.lines = ["),
        ("objects", "self.column[i] ="),
    ],
)
def test_copies_that_workers_make_by_reading_are_named(runs: dict[str, Case], name: str, line: str) -> None:
    """Within seconds or slowly, by few workers or many: the copies, the objects, the line that makes them, the cure."""
    one = runs[name]
    first = one.first()

    assert one.kind() == "oom-killed", as_text(one)
    assert (first["cause"], first["grade"] != "hypothesis") == ("leak.worker-copy", True), as_text(one)
    assert first["culprit"]["line"] == one.line(line), as_text(one)
    assert "arrays or tensors" in first["cures"][0]["title"]


@pytest.mark.root
def test_an_array_that_workers_share_is_no_illness(runs: dict[str, Case]) -> None:
    """Nothing is written to an array by reading it: four workers share it, and the run is well."""
    one = runs["an array"]

    assert one.kind() == "completed", as_text(one)
    assert [
        found["cause"] for found in one.verdict()["findings"] if found["cause"].startswith(("leak", "oversize"))
    ] == []


@pytest.mark.root
@pytest.mark.parametrize(
    ("name", "cause", "line"),
    [
        ("arrays of their own", "oversize.data", "self.table = np.ones"),
        ("started anew", "oversize.spawned-workers", "loader = DataLoader("),
        ("batches ahead", "oversize.prefetch", "loader = DataLoader("),
        ("a step too large", "oversize.spike", "large = torch.ones"),
    ],
)
def test_memory_of_workers_that_is_no_copy_is_told_as_what_it_is(
    runs: dict[str, Case], name: str, cause: str, line: str
) -> None:
    """Tables of their own, a dataset sent to each, batches that wait, a step of the trainer's: each has its word."""
    one = runs[name]
    first = one.first()

    assert one.kind() == "oom-killed", as_text(one)
    assert first["cause"] == cause, as_text(one)
    assert first["culprit"]["line"] == one.line(line), as_text(one)
