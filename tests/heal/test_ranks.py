"""Several ranks that train together are only watched, and come as far as without --heal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holter.agent.core.ranks import ranks
from tests.endings.conftest import Join, memory_cgroup  # noqa: F401
from tests.endings.ward import Case

# Two ranks, of which the second holds more: batches and what is kept grow until the limit is met.
SCRIPT = """
import time, torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []
for step in range(100):
    loss = model(torch.randn(64 * (step + 1), 64)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    kept.append(torch.ones(1_500_000 * (1 + rank)))
    if rank == 0:
        print("step", step, flush=True)
    time.sleep(0.02)
"""


@pytest.mark.torch
def test_two_ranks_under_torchrun_come_as_far_as_without_heal(
    tmp_path: Path,
    memory_cgroup: Callable[[int], Join],  # noqa: F811
) -> None:
    """Nothing is split or walled in, no second attempt is made, and one line says that the run is only watched."""
    pytest.importorskip("torch")
    found = {}
    for name, options in (("plain", []), ("healed", ["--heal"])):
        one = Case(tmp_path / name, SCRIPT)
        words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", one.script]
        found[name] = one.run(words=words, options=options, before=memory_cgroup(900_000_000))
    plain, healed = found["plain"], found["healed"]
    steps = [one.out.count("step") for one in (plain, healed)]

    assert plain.code == healed.code == 1
    assert 0 < steps[0] < 100
    assert steps[1] >= steps[0] - 1  # what the kernel counts differs by a page here and there
    assert healed.err.count("not healed: 2 ranks train together") == 1
    trainers = {event["pid"] for event in healed.holter.events("guest") if event["role"] == "trainer"}
    assert len(trainers) == 2
    assert not trainers & {event["pid"] for event in healed.holter.events("armed")}
    assert len(list((healed.holter.home / "runs").iterdir())) == 1


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({}, (1, 0)),
        ({"WORLD_SIZE": "1", "RANK": "0"}, (1, 0)),
        ({"WORLD_SIZE": "4", "RANK": "2"}, (4, 2)),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, (2, 1)),
        ({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "0"}, (8, 0)),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'}, (2, 1)),
        ({"TF_CONFIG": "not json", "WORLD_SIZE": "many"}, (1, 0)),
    ],
    ids=["alone", "one", "torchrun", "MPI", "Slurm", "TensorFlow", "nonsense"],
)
def test_ranks_are_told_by_whoever_started_them(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, str], found: tuple[int, int]
) -> None:
    for name in [name for name in os.environ if name.startswith(("SLURM_", "OMPI_", "PMI_", "WORLD_", "TF_CONFIG"))]:
        monkeypatch.delenv(name)
    for name, value in told.items():
        monkeypatch.setenv(name, value)

    assert ranks() == found
