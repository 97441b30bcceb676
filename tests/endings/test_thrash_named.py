"""Real swapping and real reclaim in a control group: named while it lasts, after it, and when it is given up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.endings.conftest import Join, _joining, _make_group
from tests.endings.ward import Case, as_text
from tests.score.control_group import ControlGroup, remove_group

MB = 1_000_000

HEAD = """
import time
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

"""
TABLE = """
table = torch.randn(1_100_000, 128)
begin = time.monotonic()
while time.monotonic() - begin < 18:
    rows = torch.randint(0, len(table), (4096,))
    x = table[rows]  # here
    train(x)
"""
MAPPED = """
data = np.load("data.npy", mmap_mode="r")
while True:
    rows = np.sort(np.random.randint(0, len(data), 1024))
    x = data[rows]  # here
    train(torch.from_numpy(x))
"""
# Memory that was swapped out once and is not needed: a part of the table is all that is ever read.
IDLE = """
table = torch.randn(1_100_000, 128)
begin = time.monotonic()
while time.monotonic() - begin < 12:
    rows = torch.randint(0, 50_000, (4096,))
    train(table[rows])
    time.sleep(0.01)
"""
# A file larger than memory that streams by in order, while the steps compute.
STREAM = """
data = np.load("data.npy", mmap_mode="r")
wide = nn.Linear(128, 2048)
begin = time.monotonic()
while time.monotonic() - begin < 12:
    for at in range(0, len(data), 4096):
        x = torch.from_numpy(np.array(data[at:at + 4096]))
        train(wide(x).detach()[:, :128].contiguous())
        if time.monotonic() - begin > 12:
            break
"""


@pytest.fixture(scope="module")
def swap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A gigabyte of swap in a file."""
    if os.geteuid() != 0:
        pytest.skip("swapping to a file needs root")
    path = tmp_path_factory.mktemp("swap") / "file"
    make = (
        f"dd if=/dev/zero of={path} bs=1M count=1000 status=none && chmod 600 {path} && mkswap {path} && swapon {path}"
    )
    done = subprocess.run(["sh", "-c", make], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no swap can be had here: {done.stderr.decode().strip()}")
    yield
    subprocess.run(["swapoff", str(path)], check=False)
    path.unlink()


@pytest.fixture(scope="module")
def group_of() -> Iterator[Callable[[int, int], Join]]:
    """Give, for a limit and the swap behind it, what puts a new process under both."""
    made: list[ControlGroup] = []

    def make(limit: int, behind: int) -> Join:
        one = {"memory.limit_in_bytes": str(limit), "memory.memsw.limit_in_bytes": str(limit + behind)}
        made.append(_make_group("memory", {**one, "memory.max": str(limit), "memory.swap.max": str(behind)}))
        return _joining(made[-1])

    yield make
    for group in made:
        remove_group(group)


def with_data(case: Case) -> Case:
    """Write the file that the script maps, and have the kernel forget that it was ever read."""
    header = "import numpy as np; np.save('data.npy', np.zeros((1_000_000, 128), 'float32'))"
    subprocess.run([sys.executable, "-c", header], cwd=case.holter.folder, check=True)
    with open(Path(case.holter.folder) / "data.npy", "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return case


@pytest.fixture(scope="module")
def cases(
    tmp_path_factory: pytest.TempPathFactory, group_of: Callable[[int, int], Join], request: pytest.FixtureRequest
) -> Iterator[dict[str, Case]]:
    """Two at a time, since each needs the disk and a core for itself."""
    request.getfixturevalue("swap")
    folder = tmp_path_factory.mktemp("thrash")
    made = {
        "table": Case(folder / "table", HEAD + TABLE),
        "mapped": with_data(Case(folder / "mapped", HEAD + MAPPED)),
        "idle": Case(folder / "idle", HEAD + IDLE),
        "stream": with_data(Case(folder / "stream", HEAD + STREAM)),
    }
    made["idle"].start(before=group_of(460 * MB, 800 * MB))
    made["stream"].start(before=group_of(440 * MB, 0)).finish()
    made["idle"].finish()
    made["mapped"].start(before=group_of(400 * MB, 0))
    made["table"].start(before=group_of(460 * MB, 800 * MB)).finish()
    yield made
    for one in made.values():
        one.holter.close()


def test_a_table_a_little_over_memory(cases: dict[str, Case]) -> None:
    """A completed run that swapped all along: the cause, and the line that waits for the table's pages."""
    case = cases["table"]

    assert case.kind() == "completed", as_text(case)
    assert case.first()["cause"] == "thrash.swap", as_text(case)
    assert case.first()["grade"] in ("established", "supported")
    assert case.first()["culprit"]["line"] == case.line("# here")


@pytest.mark.parametrize("name", ["idle", "stream"])
def test_what_is_not_needed_again_is_no_illness(cases: dict[str, Case], name: str) -> None:
    """Swap that lies still, and a file that streams by, while the steps keep their pace."""
    found = [one for one in cases[name].illnesses() if one["grade"] != "hypothesis"]

    assert found == [], as_text(cases[name])


def test_a_mapped_file_over_memory(cases: dict[str, Case], wait_for: Callable[..., object]) -> None:
    """Without swap it is the file that is thrown out and read again.

    `holter why` says it of the run that is on, and when it was interrupted it still stands first, with its line.
    """
    case = cases["mapped"]
    wait_for(lambda: case.first()["cause"] == "thrash.reclaim", "the live verdict")
    assert case.kind() in ("running", "hung")

    assert case.process is not None
    case.process.send_signal(signal.SIGINT)
    case.finish()

    assert case.kind() in ("interrupted", "hung")
    assert case.first()["cause"] == "thrash.reclaim", as_text(case)
    assert case.first()["culprit"]["line"] == case.line("# here")
