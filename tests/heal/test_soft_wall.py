"""A batch that would have the run killed by the kernel is run in chunks instead, within a real limit of memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.endings.conftest import Join, memory_cgroup  # noqa: F401
from tests.endings.ward import Case

pytestmark = pytest.mark.torch

LIMIT = 700_000_000

# Each of the blocks keeps some 24 MB tensors for its backward: more than the limit together.
SCRIPT = """
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
blocks = [part for _ in range(14) for part in (nn.GELU(), nn.LayerNorm(2000))]
model = nn.Sequential(nn.Linear(16, 2000), *blocks, nn.Linear(2000, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(4):
    x = torch.randn(3000, 16)
    loss = nn.functional.cross_entropy(model(x), torch.arange(3000) % 4)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.6f}", flush=True)
"""


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The same run with room for all of it."""
    return Case(tmp_path_factory.mktemp("free"), SCRIPT).run()


@pytest.fixture(scope="module")
def healed(tmp_path_factory: pytest.TempPathFactory, memory_cgroup: Callable[[int], Join]) -> Case:  # noqa: F811
    return Case(tmp_path_factory.mktemp("healed"), SCRIPT).run(options=["--heal"], before=memory_cgroup(LIMIT))


def test_without_healing_the_kernel_ends_it(tmp_path: Path, memory_cgroup: Callable[[int], Join]) -> None:  # noqa: F811
    """The batch really does not fit."""
    case = Case(tmp_path, SCRIPT).run(before=memory_cgroup(LIMIT))

    assert case.code == 137
    assert case.verdict()["ending"]["kind"] == "oom-killed"


def test_a_run_that_would_be_killed_finishes_with_the_same_losses(free: Case, healed: Case) -> None:
    """No step is lost, and every loss is the one of the run with room for all."""
    wanted, found = ([float(line) for line in case.out.split()] for case in (free, healed))

    assert healed.code == 0, healed.err
    assert len(found) == 4
    assert found == pytest.approx(wanted, rel=1e-5)


# Holds all but a twentieth of its limit, taken outside of any call of the model, and trains on.
NEARLY_ALL = """
import time, torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.Adam(model.parameters())
lines = open("/proc/self/cgroup").read().splitlines()
group = "/sys/fs/cgroup/memory" + next(line.split(":")[2] for line in lines if ":memory:" in line)


def train(steps):
    for _ in range(steps):
        loss = model(torch.randn(64, 64)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
    return loss.item()


def share():
    held = next(int(line.split()[1]) for line in open(group + "/memory.stat") if line.startswith("total_rss "))
    return held / int(open(group + "/memory.limit_in_bytes").read())


train(40)  # until the wall is known
kept = []
while share() < 0.95:
    kept.append(b"x" * 2_000_000)
print("loss", repr(train(40)), share() > 0.94)
"""


def test_a_run_that_fits_in_its_limit_is_not_stopped_by_our_wall(
    tmp_path: Path,
    memory_cgroup: Callable[[int], Join],  # noqa: F811
) -> None:
    """95 % of it, by blocks that no reflex could split: with and without --heal it ends with the same loss."""
    if not Path("/sys/fs/cgroup/memory/memory.stat").exists():
        pytest.skip("reads the files of control groups of version 1")
    plain = Case(tmp_path / "plain", NEARLY_ALL).run(before=memory_cgroup(600_000_000))
    healed = Case(tmp_path / "healed", NEARLY_ALL).run(before=memory_cgroup(600_000_000), options=["--heal"])

    assert (plain.code, healed.code) == (0, 0), healed.err
    assert plain.out.endswith("True\n")
    assert healed.out == plain.out


def test_the_act_is_told_on_stderr_and_in_the_verdict(healed: Case) -> None:
    """Once while the run is on, once at its end, and in the verdict as JSON."""
    verdict = healed.verdict()

    assert healed.err.count("the batch of 3000 did not fit") == 2
    assert "(the result is the same)" in healed.err
    assert verdict["healthy"]
    assert [(act["act"], act["keeps"], act["step"]) for act in verdict["interventions"]] == [
        ("split-batch", "exact", 1)
    ]
