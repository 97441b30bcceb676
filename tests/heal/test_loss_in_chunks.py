"""Within a real limit, a training whose batch or whose own loss does not fit comes to the loss of the one with room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.endings.conftest import Join, memory_cgroup  # noqa: F401 - a fixture
from tests.endings.ward import Case, as_text

pytestmark = pytest.mark.torch

LIMIT = 400_000_000

DEEP = """
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
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        held = nn.functional.cross_entropy(model(data.tensors[0][:600]), data.tensors[1][:600])
    print(f"{held.item():.7f}", flush=True)
print(steps, flush=True)
"""


def test_the_updates_are_those_of_the_run_with_room_for_all(
    tmp_path_factory: pytest.TempPathFactory,
    memory_cgroup: Callable[[int], Join],  # noqa: F811
) -> None:
    """For two passes, within a limit that the batch does not fit in."""
    free = Case(tmp_path_factory.mktemp("free"), DEEP).run()
    healed = Case(tmp_path_factory.mktemp("healed"), DEEP).run(options=["--heal"], before=memory_cgroup(LIMIT))
    wanted, found = ([float(line) for line in case.out.split()] for case in (free, healed))

    assert healed.code == 0, healed.err
    assert found == pytest.approx(wanted, rel=1e-3)
    assert found[-1] == 48
    assert "split-batch" in [act["act"] for act in healed.verdict()["interventions"]]


# A distance to each of many points, for each sample: the script's own, and much larger than the model.
WIDE = """
    import os, sys, time
    import torch, holter
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(256, 16)
    data = TensorDataset(x, x.sum(1).tanh())
    loader = DataLoader(data, batch_size=128, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    points = torch.linspace(-1, 1, 200_000)


    def loss_of(out, y, points):
        far = (out - points).abs()
        return (far * (-(y[:, None] - points).abs() * 4).exp()).mean()


    def whole_loss():
        with torch.no_grad():
            parts = zip(x.split(16), data.tensors[1].split(16))
            return sum(loss_of(model(some), wanted, points).item() for some, wanted in parts) / 16


    LOOP
    print("loss", whole_loss())
    """
PLAIN = """for epoch in range(2):
        for x_, y_ in loader:
            loss = loss_of(model(x_), y_, points)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()"""
LATER = """done = []
    for epoch in holter.resumable(range(3), model=model, optimizer=optimizer, done=done, every=0.0):
        for x_, y_ in holter.resumable(loader):
            loss = loss_of(model(x_), y_, points if len(done) > 2 else points[::4])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done.append(len(x_))
            time.sleep(0.3)
    print("samples", sum(done))"""
ROOM = 600_000_000


def wide(loop: str) -> str:
    return WIDE.replace("LOOP", loop)


@pytest.fixture(scope="module")
def cases(
    tmp_path_factory: pytest.TempPathFactory,
    memory_cgroup: Callable[[int], Callable[[], None]],  # noqa: F811
) -> Any:
    """The same script with room for all, without and with --heal; and one whose loss grows later on."""
    made = {name: Case(tmp_path_factory.mktemp(name) / "case", wide(PLAIN)) for name in ("free", "dies", "healed")}
    made.update({name: Case(tmp_path_factory.mktemp(name) / "case", wide(LATER)) for name in ("free later", "later")})
    made["free"].start()
    made["dies"].start(before=memory_cgroup(ROOM))
    for name in ("free", "dies"):
        made[name].finish()
    made["healed"].start(options=["--heal"], before=memory_cgroup(ROOM))
    made["later"].start(options=["--heal"], before=memory_cgroup(ROOM))
    for name in ("healed", "later"):
        made[name].finish()
    made["free later"].start().finish()
    yield made
    for case in made.values():
        case.holter.close()


def test_a_loss_that_does_not_fit_is_made_in_chunks(cases: dict[str, Case]) -> None:
    """Killed without --heal; with it the run begins anew, and comes to the loss of the one that had room."""
    healed = cases["healed"]

    assert cases["dies"].code in (137, -9)  # the kernel may take the recorder as well
    assert healed.code == 0, as_text(healed)
    assert healed.printed("loss") == pytest.approx(cases["free"].printed("loss"), rel=1e-3)
    acts = {(act["act"], act["keeps"]) for act in healed.verdict()["interventions"] if act["done"]}
    assert acts == {("restart", "equivalent"), ("split-batch", "exact")}, as_text(healed)
    assert "Started again for oversize.batch: each batch is run in" in healed.err


def test_with_a_state_it_goes_on_from_there(cases: dict[str, Case]) -> None:
    """The loss grows in the second epoch: what was done is kept, and each sample is learnt from once an epoch."""
    later = cases["later"]

    assert later.code == 0, as_text(later)
    assert later.printed("samples") == 3 * 256
    assert later.printed("loss") == pytest.approx(cases["free later"].printed("loss"), rel=1e-3)
    assert "goes on after step" in later.err
