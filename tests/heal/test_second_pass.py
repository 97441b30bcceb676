"""Where most of a batch has to be computed twice, the loader hands it out in parts from its next pass on."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from holter.agent.heal.chunk_tuning import Tuning
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


@pytest.mark.parametrize(("kept", "asked"), [((1, 4), [4]), ((1, 2), [2]), ((3, 4), []), ((1, 1), [])])
def test_the_loader_is_asked_where_three_parts_in_ten_are_computed_twice(
    kept: tuple[int, int], asked: list[int]
) -> None:
    """For parts of as many samples as were seen to fit."""
    told: list[int] = []
    split = SimpleNamespace(loader=SimpleNamespace(ask=told.append))
    care = SimpleNamespace(kept=kept, split=split, alone={}, room=SimpleNamespace(share=1.0), fewest=1)
    care._rows_alone = lambda *_: 0
    SplitState._spare_the_second_pass(care, (), Tuning(240, 240 // kept[1], 1))

    assert told == asked


def test_parts_from_the_loader_may_be_larger_since_the_rest_of_the_batch_is_not_there() -> None:
    """What a sample takes by itself counts, and not the outputs of the whole batch that stay in place."""
    room, weights = SimpleNamespace(workspace=1.2, share=1.0), SimpleNamespace(bytes=100)
    care = SimpleNamespace(costs={(): (10, 100 + 4 * 256)}, left=1700, room=room, weights=weights)

    assert SplitState._rows_alone(care, (), 256) == 100  # (1700 - 100) / (10 * 1.2 + 4)
    room.share = 0.6
    assert SplitState._rows_alone(care, (), 256) == 57  # on a CPU, with room to spare


def test_a_part_from_the_loader_is_tried_whole_up_to_what_is_thought_to_fit() -> None:
    """Though in place, with all the outputs of the batch beside them, only smaller ones were seen to fit."""
    care = SimpleNamespace(alone={"rows": 64})
    known = Tuning(256, 32, 1)

    assert SplitState._fits_at_once(care, SimpleNamespace(size=64, shapes="rows"), known) == 65
    assert SplitState._fits_at_once(care, SimpleNamespace(size=256, shapes="rows"), known) == 32
    assert SplitState._fits_at_once(care, SimpleNamespace(size=64, shapes="others"), known) == 33


def test_a_part_that_was_thought_to_fit_and_did_not_is_tuned_by_itself() -> None:
    """So that the loader is asked for smaller ones, instead of each being computed twice for good."""
    said: list[tuple[int, int]] = []
    split = SimpleNamespace(tell_split=lambda _care, size, rows: said.append((size, rows)), loader=None)
    care = SimpleNamespace(alone={"rows": 64}, sizes={"rows": Tuning(256, 32, 1)}, calls={}, fewest=1, split=split)
    care._fits_at_once = lambda *given: SplitState._fits_at_once(care, *given)
    SplitState.learned(
        care, SimpleNamespace(size=200, shapes="rows"), 29, 29
    )  # a last batch, in place, as it was asked for
    assert care.alone

    SplitState.learned(care, SimpleNamespace(size=64, shapes="rows"), 32)

    assert care.alone == {}
    assert (care.sizes["rows"].size, care.sizes["rows"].rows) == (64, 32)
    assert said[-1] == (64, 32)


def test_the_loader_hands_out_the_largest_parts_that_were_seen_to_fit() -> None:
    """In place more parts may be the quicker ones, since more of them can be kept; at the loader nothing is dropped."""
    tuning = Tuning(256, 64, 1)
    while not tuning.done:
        tuning.took(1.0 / tuning.parts, lambda rows: rows <= 90)

    assert (tuning.rows, tuning.fits) == (16, 86)


@pytest.mark.parametrize(("parts", "times", "wanted"), [(1, 3, 3), (3, 2, 6), (0, 2, 2)])
def test_the_loader_multiplies_its_parts_from_the_next_pass_on(parts: int, times: int, wanted: int) -> None:
    """A model may be handed more or fewer samples than its loader gives: only the proportion counts."""
    armed: list[bool] = []
    loader = SimpleNamespace(parts=parts, wanted=parts, guard=lambda act: act, arm=lambda: armed.append(True))
    LoaderSplit.ask(loader, times)

    assert (loader.wanted, loader.parts, armed) == (wanted, parts, [True])
