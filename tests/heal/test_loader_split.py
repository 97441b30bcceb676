"""Batches that a loader hands out in chunks come to the same updates: for loops of many kinds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")

from tests.agent.agent_run import Run, run
from tests.endings.conftest import memory_cgroup  # noqa: F401 - a fixture
from tests.endings.ward import Case, as_text
from tests.heal.loader_loops import LOOPS

pytestmark = pytest.mark.torch

PARTS = 3
ALIKE = [
    "mean_loss", "mean_by_hand", "sum_loss", "sum_over_size", "sum_over_a_constant", "with_a_penalty", "ignored_labels",
    "masked", "loss_of_the_model", "a_smaller_last_batch", "dictionaries", "lists_of_pictures", "sequences_first",
    "workers", "zero_after", "clipped_and_scheduled", "scaled", "accumulated_by_two", "accumulated_with_a_tail",
    "two_losses", "two_loaders", "evaluated_between", "averaged", "rate_by_the_length", "looked_at_first",
    "in_a_generator", "with_its_mean_told",
]  # fmt: skip
DECLINED = {
    "contrastive": "compares the samples",
    "root_of_the_mean": "no sum or mean over the samples (SqrtBackward)",
    "divided_by_a_draw": "divided by a number that is not found in the batch",
    "in_turns": "several updates are made with each batch",
    "clipped_by_hand": "changed by hand",
    "replaced_by_hand": "changed by hand",
    "dropped_by_hand": "changed by hand",
    "warmed_up_by_count": "its own count of iterations",
    "with_a_closure": "within a closure",
    "counted": "asks for a number of batches",
    "ragged": "does not follow the batch of 12",
    "updated_now_and_then": "optimizer.step is called after 1 iterations here and after 3 there",
}

OTHERS = ["batch_norm", "left_early"]
COUNT = ("warmed_up_by_count", "updated_now_and_then")  # loops that have counted what was taken back
ROUGHLY = ("two_loaders",)  # their shares differ a little in the first batch, whose parts are uneven


class Both(NamedTuple):
    """The same loops without and with the reflex."""

    whole: dict[str, dict[str, Any]]
    parts: dict[str, dict[str, Any]]
    told: Run


Compare = Callable[..., Both]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Compare:
    """Run some loops with the reflex; as they are, all of them have been run before."""
    whole = run(tmp_path_factory.mktemp("whole"), script([*ALIKE, *DECLINED, *OTHERS]), agent=False)
    assert whole.code == 0, whole.err

    def make(names: list[str], allowed: str = "safe") -> Both:
        folder = tmp_path_factory.mktemp("parts")
        parts = run(folder, script(names), HOLTER_HEAL=allowed, HOLTER_LOADER=str(PARTS))
        assert parts.code == 0, parts.err
        assert parts.kind("guest-error") == []
        return Both(_read(whole), _read(parts), parts)

    return make


def script(names: list[str]) -> str:
    return LOOPS + "\n".join(f"told({name!r})" for name in names)


def _read(done: Run) -> dict[str, dict[str, Any]]:
    return {found["name"]: found for found in map(json.loads, done.out.splitlines())}


@pytest.fixture(scope="module")
def alike(both: Compare) -> Both:
    return both(ALIKE)


@pytest.fixture(scope="module")
def declined(both: Compare) -> Both:
    return both(list(DECLINED))


@pytest.mark.parametrize("name", ALIKE)
def test_the_updates_are_those_of_whole_batches(alike: Both, name: str) -> None:
    """Weights, learning rate, scale and counts of updates are the same; the loop has seen the parts."""
    whole, parts = alike.whole[name], alike.parts[name]

    assert parts["weights"] == pytest.approx(whole["weights"], rel=1e-9, abs=1e-3 if name in ROUGHLY else 1e-12)
    assert (parts["rate"], parts["more"]) == (whole["rate"], whole["more"])
    assert parts["seen"] >= whole["seen"] * PARTS


def test_it_is_told_once(alike: Both) -> None:
    acts = alike.told.kind("intervention")

    assert [(act["act"], act["keeps"], act["batch"]) for act in acts] == [("split-loader", "equivalent", 12)]
    assert acts[0]["text"] == "each batch of 12 is handed out in 3 chunks, with one update for all"
    assert alike.told.kind("declined") == []


@pytest.mark.parametrize("name", [name for name in DECLINED if name not in COUNT])
def test_what_would_come_to_something_else_is_run_whole(declined: Both, name: str) -> None:
    """The first batch is handed out once more as it came: the result is the loop's own, to the last bit but one."""
    whole, parts = declined.whole[name], declined.parts[name]

    assert parts["weights"] == pytest.approx(whole["weights"], rel=1e-9, abs=1e-12)


def test_the_reasons_are_told(declined: Both) -> None:
    reasons = [event["because"] for event in declined.told.kind("declined")]

    assert len(reasons) == len(DECLINED), reasons
    for reason, wanted in zip(reasons, DECLINED.values(), strict=True):
        assert wanted in reason


def test_what_is_not_the_same_is_said(both: Compare) -> None:
    """BatchNorm: equivalent, with statistics that move as far. A loop that is left after so many iterations: told.
    A loss that compares samples: with `--heal=all` alone, as a change."""
    found = both([*OTHERS, "contrastive"], "all")
    whole, parts = found.whole["batch_norm"], found.parts["batch_norm"]

    assert parts["more"][0] == pytest.approx(whole["more"][0], abs=0.05)
    assert parts["more"][1] == whole["more"][1] == 0.1
    assert found.parts["contrastive"]["seen"] == 30
    acts = found.told.kind("intervention")
    assert acts[0]["because"].endswith("BatchNorm the statistics of each chunk")
    assert (acts[-1]["keeps"], acts[-1]["because"]) == (
        "changed",
        "the loss compares the samples of a batch with each other",
    )
    assert [event["because"] for event in found.told.kind("declined")] == [
        "the loop was left after 4 iterations, which were 2 batches: if it counts them, it ended early"
    ]


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


def test_a_loss_that_does_not_fit_is_cured_by_smaller_parts(cases: dict[str, Case]) -> None:
    """Killed without --heal; with it the run begins anew, and comes to the loss of the one that had room."""
    healed = cases["healed"]

    assert cases["dies"].code in (137, -9)  # the kernel may take the recorder as well
    assert healed.code == 0, as_text(healed)
    assert healed.printed("loss") == pytest.approx(cases["free"].printed("loss"), rel=1e-3)
    acts = [(act["act"], act["keeps"]) for act in healed.verdict()["interventions"] if act["done"]]
    assert acts[-2:] == [("restart", "equivalent"), ("split-loader", "equivalent")], as_text(healed)
    assert "Started again for oversize.batch: the loader hands out each batch in" in healed.err
    assert "in 2 chunks, with one update for all" in healed.err


def test_with_a_state_it_goes_on_from_there(cases: dict[str, Case]) -> None:
    """The loss grows in the second epoch: what was done is kept, and each sample is learnt from once an epoch."""
    later = cases["later"]

    assert later.code == 0, as_text(later)
    assert later.printed("samples") == 3 * 256
    assert later.printed("loss") == pytest.approx(cases["free later"].printed("loss"), rel=1e-3)
    assert "goes on after step" in later.err


LEFT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def main():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=16)
    for epoch in range(3):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if epoch == 1:
                LEAVE

main()
"""


@pytest.mark.parametrize(
    ("leave", "count"), [("raise RuntimeError('out of memory')", 0), ("break", 1)], ids=["an error", "its own choice"]
)
def test_a_loop_that_an_error_has_left_did_not_count_its_chunks(tmp_path, leave: str, count: int) -> None:
    """Only one that is left by choice may have ended early; after an error smaller chunks are still to be tried."""
    done = run(tmp_path, LEFT.replace("LEAVE", leave), HOLTER_HEAL="safe", HOLTER_LOADER="2")

    told = [event for event in done.kind("declined") if "the loop was left" in event["because"]]
    assert len(told) == count


# Loops that draw a batch while they learn from the one before: pieces of it would each get an update of their own.
AHEAD = """
import queue, threading, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def generator(loader):
    drawn = iter(loader)
    waiting = next(drawn)
    for batch in drawn:
        yield waiting
        waiting = batch
    yield waiting

class prefetcher:
    def __init__(self, loader):
        self.drawn = iter(loader)
        self.preload()
    def preload(self):
        self.waiting = next(self.drawn, None)
    def __iter__(self):
        return self
    def __next__(self):
        batch = self.waiting
        if batch is None:
            raise StopIteration
        self.preload()
        return batch

def thread(loader):
    ready = queue.Queue(2)
    def draw():
        for batch in loader:
            ready.put(batch)
        ready.put(None)
    threading.Thread(target=draw, daemon=True).start()
    return iter(ready.get, None)

def passed_on(loader):
    for x, y in loader:
        x = x * 1.0
        yield x, y

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=16)
for epoch in range(2):
    for x, y in HOW(loader):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(*model.weight.flatten().tolist())
"""


@pytest.mark.parametrize("how", ["generator", "prefetcher", "thread", "passed_on"])
def test_a_batch_that_is_held_back_is_never_learnt_from_in_pieces(tmp_path, how: str) -> None:
    """Drawn ahead it is left whole, with the reason; a generator that passes on what it has drawn is no obstacle."""
    text = AHEAD.replace("HOW", how)
    plain = run(tmp_path / "plain", text)
    healed = run(tmp_path / "healed", text, HOLTER_HEAL="safe", HOLTER_LOADER="2")

    found = [[float(word) for word in one.out.split()] for one in (plain, healed)]
    assert found[1] == pytest.approx(found[0], rel=1e-4, abs=1e-6)
    declined = [event["because"] for event in healed.kind("declined")]
    if how == "passed_on":
        assert [event["act"] for event in healed.kind("intervention")] == ["split-loader"]
        assert declined == []
    else:
        assert found[1] == found[0]
        assert [because for because in declined if "may hold one back" in because]
