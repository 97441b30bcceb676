"""A batch that would have the run killed by the kernel is run in parts instead, within a real limit of memory."""

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
model = nn.Sequential(nn.Linear(16, 2000), *blocks, nn.Dropout(0.1), nn.Linear(2000, 4))
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
    """No step is lost, and every loss is the one of the run with room for all, dropout and all."""
    wanted, found = ([float(line) for line in case.out.split()] for case in (free, healed))

    assert healed.code == 0, healed.err
    assert len(found) == 4
    assert found == pytest.approx(wanted, rel=1e-5)


def test_the_act_is_told_on_stderr_and_in_the_verdict(healed: Case) -> None:
    """Once while the run is on, once at its end, and in the verdict as JSON."""
    verdict = healed.verdict()

    assert healed.err.count("the batch of 3000 did not fit") == 2
    assert "(the result is the same)" in healed.err
    assert verdict["healthy"]
    assert [(act["act"], act["keeps"], act["step"]) for act in verdict["interventions"]] == [
        ("split-batch", "exact", 1)
    ]
