"""Where most of a batch has to be computed twice, the loader hands it out in parts from its next pass on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.endings.conftest import Join, memory_cgroup  # noqa: F401
from tests.endings.ward import Case

pytestmark = pytest.mark.torch

LIMIT = 400_000_000

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
data = TensorDataset(torch.randn(24 * 1200, 16), torch.arange(24 * 1200) % 4)
loader = DataLoader(data, batch_size=1200)
blocks = [part for _ in range(10) for part in (nn.GELU(), nn.LayerNorm(1000))]
model = nn.Sequential(nn.Linear(16, 1000), *blocks, nn.Linear(1000, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
steps = 0
optimizer.register_step_post_hook(lambda *_: globals().__setitem__("steps", steps + 1))
for epoch in range(EPOCHS):
    for x, y in loader:
        loss = LOSS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        held = nn.functional.cross_entropy(model(data.tensors[0][:600]), data.tensors[1][:600])
    print(f"{held.item():.7f}", flush=True)
print(steps, flush=True)
"""
MEAN = "nn.functional.cross_entropy(model(x), y)"
# Each sample of the batch is held against all others: parts of it would learn something else.
AGAINST_ALL = "(lambda z: nn.functional.cross_entropy(z @ z.T, y))(nn.functional.normalize(model(x)))"


def run(folder: pytest.TempPathFactory, loss: str, join: Join | None) -> Case:
    text = SCRIPT.replace("LOSS", loss).replace("EPOCHS", "2")
    options = ["--heal"] if join is not None else []
    return Case(folder.mktemp("case"), text).run(options=options, before=join)


@pytest.mark.parametrize("loss", [MEAN, AGAINST_ALL], ids=["a mean over samples", "all against all"])
def test_the_loader_takes_over_where_it_may(
    tmp_path_factory: pytest.TempPathFactory,
    memory_cgroup: Callable[[int], Join],  # noqa: F811
    loss: str,
) -> None:
    """The updates are those of the run with room for all; a loss over the whole batch stays with the split in place."""
    free = run(tmp_path_factory, loss, None)
    healed = run(tmp_path_factory, loss, memory_cgroup(LIMIT))
    wanted, found = ([float(line) for line in case.out.split()] for case in (free, healed))
    acts = [act["act"] for act in healed.verdict()["interventions"]]

    assert healed.code == 0, healed.err
    assert found == pytest.approx(wanted, rel=1e-3)
    assert found[-1] == 48
    assert "split-batch" in acts
    assert ("split-loader" in acts) == (loss == MEAN)
