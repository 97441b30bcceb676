"""Where most of a batch has to be computed twice, the loader hands it out in chunks from its next pass on."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from holter.agent.torch.heal.loader import LoaderSplit
from holter.agent.torch.heal.split_state import SplitState
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
    """For two passes: one in place, and one by whoever is the faster, within a limit that the batch does not fit in."""
    free = Case(tmp_path_factory.mktemp("free"), SCRIPT).run()
    healed = Case(tmp_path_factory.mktemp("healed"), SCRIPT).run(options=["--heal"], before=memory_cgroup(LIMIT))
    wanted, found = ([float(line) for line in case.out.split()] for case in (free, healed))

    assert healed.code == 0, healed.err
    assert found == pytest.approx(wanted, rel=1e-3)
    assert found[-1] == 48
    assert "split-batch" in [act["act"] for act in healed.verdict()["interventions"]]


def state_of(share: float = 1.0) -> tuple[Any, list[int], list[tuple[int, int]]]:
    """What is known of a model with a loader to ask, what that was asked for, and what was said."""
    asked: list[int] = []
    said: list[tuple[int, int]] = []
    state = SplitState.__new__(SplitState)
    state.split = SimpleNamespace(
        loader=SimpleNamespace(ask=asked.append),
        report_split=lambda _state, size, rows, _graph: said.append((size, rows)),
    )
    state.budget, state.norms, state.rows, state.calls = SimpleNamespace(loader_share=share, free=lambda: 0), [], {}, {}
    return state, asked, said


def call(size: int) -> Any:
    return SimpleNamespace(size=size, shapes="shapes", with_graph=True)


@pytest.mark.parametrize(("share", "wanted"), [(1.0, 4), (0.6, 7)])
def test_the_loader_is_asked_once_a_number_of_chunks_has_held(share: float, wanted: int) -> None:
    """For chunks of as many samples as were seen to fit, or some fewer on a CPU."""
    state, asked, said = state_of(share)
    state.learned(call(240), 60, 240)
    for _ in range(10):
        state.learned(call(240), 60, 60, 1.0)

    assert (asked, said) == ([wanted], [(240, 60)])


def test_chunks_that_no_longer_fit_are_halved_and_the_loader_is_asked_anew() -> None:
    """So that it hands out smaller ones, instead of each being computed twice for good."""
    state, asked, said = state_of()
    for size, rows, times in ((240, 60, 4), (60, 30, 4)):
        state.learned(call(size), rows, size)
        for _ in range(times):
            state.learned(call(size), rows, rows, 1.0)

    assert (asked, said) == ([4, 2], [(240, 60), (60, 30)])


def test_a_last_batch_of_another_size_asks_for_nothing() -> None:
    """It comes once in a pass."""
    state, asked, _said = state_of()
    state.learned(call(240), 60, 240)
    for _ in range(2):
        state.learned(call(240), 60, 60, 1.0)
        state.learned(call(200), 50, 50, 1.0)

    assert asked == []
    assert state.rows == {"shapes": 60}


@pytest.mark.parametrize(("parts", "times", "wanted"), [(1, 3, 3), (3, 2, 6), (0, 2, 2)])
def test_the_loader_multiplies_its_parts_from_the_next_pass_on(parts: int, times: int, wanted: int) -> None:
    """A model may be handed more or fewer samples than its loader gives: only the proportion counts."""
    armed: list[bool] = []
    loader = SimpleNamespace(chunks=parts, wanted=parts, guard=lambda act: act, arm=lambda: armed.append(True))
    LoaderSplit.ask(loader, times)

    assert (loader.wanted, loader.chunks, armed) == (wanted, parts, [True])
