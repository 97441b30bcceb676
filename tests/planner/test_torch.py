"""A plan of a PyTorch step: drawn without memory, true to what is measured, and nothing of the user's is touched."""

from __future__ import annotations

import copy
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holter

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.torch


def mlp(width: int = 64) -> Any:
    return nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def rows(n: int) -> Any:
    return torch.randn(n, 32), torch.randint(0, 10, (n,))


def drawing(
    model: Any, batch: Any, optimizer: Any = "adamw", loss: Any = nn.functional.cross_entropy, **more: Any
) -> Any:
    from holter.planner.torch.drawing import Drawing
    from holter.planner.torch.step import Recipe

    return Drawing(torch, Recipe(model, batch, len(batch[0]), optimizer, loss, **more), "cpu")


def test_a_step_is_counted_to_the_byte() -> None:
    """A layer of 8 by 8 without bias on 100 rows: its weights, their gradient, input, output, and the loss's own."""
    model = nn.Linear(8, 8, bias=False)
    found = drawing(model, (torch.randn(100, 8),), None, lambda out: out.sum()).fakes.trace(100)
    from holter.planner.timeline import summit

    peak = summit(found)
    assert peak.parts["parameters"] == 8 * 8 * 4
    assert peak.total == (8 * 8 + 100 * 8 + 100 * 8 + 1) * 4 + (8 * 8 * 4 if peak.phase == "backward" else 0)


def test_views_take_no_memory() -> None:
    """A transposed, reshaped or expanded tensor is the one it was made of."""
    plain = drawing(nn.Linear(8, 8), (torch.randn(4, 8),), None, lambda out: out.sum()).summit(64).total
    viewed = drawing(nn.Linear(8, 8), (torch.randn(4, 8),), None, lambda out: out.t().t().unsqueeze(0).sum())

    assert viewed.summit(64).total == plain


@pytest.mark.parametrize("optimizer", ["sgd", "sgd-momentum", "adamw", "adamw-fused", "adamw-foreach", "adafactor"])
def test_the_optimizers_state_is_its_own_part(optimizer: str) -> None:
    """None for SGD, one copy of the weights with momentum, two for AdamW; and it is there in backward already."""
    if optimizer == "adafactor" and not hasattr(torch.optim, "Adafactor"):
        pytest.skip("this PyTorch has no Adafactor")
    model = mlp(256)
    weights = sum(p.numel() * 4 for p in model.parameters())
    copies = drawing(model, rows(4), optimizer).summit(4000).parts["optimizer"] / weights

    expected = {"sgd": 0, "sgd-momentum": 1, "adafactor": 0}.get(optimizer, 2)
    assert copies == pytest.approx(expected, abs=0.05)


def test_what_is_drawn_from_two_sizes_is_what_a_trace_finds() -> None:
    """At a size ten times as large, to the byte."""
    drawn = drawing(mlp(), rows(4))
    at = drawn.summit(640).total

    assert drawn.lines
    from holter.planner.timeline import summit

    assert at == summit(drawn.fakes.trace(640), drawn.quantum).total


def test_what_grows_with_the_square_of_the_batch_is_traced_at_every_size() -> None:
    """A loss over all pairs of samples is no line."""
    pairs = drawing(mlp(), rows(4), loss=lambda out, _y: (out @ out.t()).pow(2).mean())
    small, large = pairs.summit(500).total, pairs.summit(1000).total

    assert not pairs.lines
    assert large > 3 * small


def test_checkpointing_and_bf16_take_less() -> None:
    """A stack of blocks, computed again in backward or kept in half the bytes."""
    block = lambda: nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))  # noqa: E731
    model = nn.Sequential(nn.Linear(32, 64), nn.Sequential(*(block() for _ in range(6))), nn.Linear(64, 10))
    plain = drawing(model, rows(4)).summit(1000).total
    again = drawing(model, rows(4), checkpointing=True).summit(1000).total
    short = drawing(model, rows(4), precision="bf16").summit(1000).total

    assert again < 0.5 * plain
    assert short < 0.8 * plain


def test_a_plan_leaves_everything_as_it_was() -> None:
    """Weights, gradients, buffers, the optimizer's state, the random numbers and the mode."""
    model = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 10)).eval()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.randn(4, 32)).sum().backward()
    optimizer.step()
    weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    batch, gradients = rows(64), [p.grad.clone() for p in model.parameters()]
    random = torch.get_rng_state()

    holter.plan(model, batch, optimizer, nn.functional.cross_entropy, memory="2GB", table=False)

    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients, strict=True))
    after = optimizer.state_dict()["state"]
    assert all(torch.equal(v, after[n][k]) for n, s in state["state"].items() for k, v in s.items())
    assert torch.equal(torch.get_rng_state(), random)
    assert not model.training


def test_the_parts_add_up_to_the_peak_and_the_largest_batch_fits() -> None:
    """And twice as large a one does not. On a CPU what the process holds already is a part of it."""
    resident = int(Path("/proc/self/statm").read_text().split()[1])
    limit = resident * resource.getpagesize() // 10**6 + 500
    memory = f"{limit}MB"
    plan = holter.plan(mlp(512), rows(8192), "adamw", nn.functional.cross_entropy, memory=memory, table=False)
    figures = plan.told

    assert sum(figures["parts"].values()) == pytest.approx(figures["peak"]["likely"], rel=1e-6)
    assert figures["largest"]["high"] <= limit * 1e6
    assert figures["peak"]["low"] <= figures["peak"]["likely"] <= figures["peak"]["high"]
    beyond = [point for point in figures["curve"] if point["batch"] > 1.5 * plan.largest_batch]
    assert all(point["high"] > limit * 1e6 for point in beyond)


TRAIN = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from tests.planner.test_torch import mlp, rows
torch.set_num_threads(1)
size = int(sys.argv[3])
if sys.argv[2] == "plan":
    import holter, json
    loss = torch.nn.functional.cross_entropy
    print(json.dumps(holter.plan(mlp(512), rows(size), "adamw", loss, memory="650MB", table=False).told))
else:
    from holter.facts.host_memory import highest
    model, (x, y) = mlp(512), rows(size)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    print(highest())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the highest mark of a process can be read on Linux only")
def test_a_process_that_trains_holds_what_was_foretold(request: pytest.FixtureRequest) -> None:
    """A fresh one, at a size four times as large as any that the planner ran."""
    size = 24_000
    words = [sys.executable, "-c", TRAIN, str(request.config.rootpath)]
    told, true = (
        json.loads(subprocess.run([*words, what, str(size)], capture_output=True, text=True, check=True).stdout)
        for what in ("plan", "train")
    )

    assert max(one["batch"] for one in told["measured"]) < size / 4
    assert told["peak"]["likely"] == pytest.approx(true, rel=0.1)
    assert told["peak"]["high"] > 0.98 * true


class Picky(nn.Module):
    """Does what fake tensors can't: its shapes depend on its data."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        return self.inner(torch.unique(x, dim=0))


def test_a_step_that_fake_tensors_cannot_run_is_planned_from_small_real_ones() -> None:
    """And the plan says so."""
    model = Picky()
    plan = holter.plan(model, (torch.randn(32, 32),), "sgd", lambda out: out.sum(), memory="2GB")

    assert plan.largest_batch > 32
    assert "fake tensors can't run this step" in plan.told["notes"][0]


def test_masks_and_scalars_that_are_read_back_do_not_stop_a_plan() -> None:
    """A selection is counted as if it kept everything; a number read back is one."""

    def loss(out: Any, y: Any) -> Any:
        kept = out[y > 2]
        return kept.sum() / max(1, int((y > 2).sum().item()))

    found = drawing(mlp(), rows(4), loss=loss).summit(100)

    assert found.total > 0


def test_a_transformers_model_is_planned_by_its_own_loss() -> None:
    """A dict of tensors goes in, `output.loss` comes out."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=100, n_positions=64)
    model = transformers.GPT2LMHeadModel(config)
    tokens = torch.randint(0, 100, (4, 32))
    plan = holter.plan(model, {"input_ids": tokens, "labels": tokens}, "adamw", memory="2GB", table=False)

    assert plan.told["parts"]["optimizer"] > 0
    assert not any("can't run" in note for note in plan.told["notes"])


def test_a_step_of_the_users_own_is_run_as_it_is() -> None:
    """Two models' worth of calls, whatever they are."""
    model = mlp()
    one = holter.plan(model, torch.randn(64, 32), "sgd", step=lambda m, x: m(x).mean(), memory="2GB", table=False)
    two = holter.plan(
        model, torch.randn(64, 32), "sgd", step=lambda m, x: (m(x) + m(x * 2)).mean(), memory="2GB", table=False
    )

    assert two.told["parts"]["activations"] > 1.5 * one.told["parts"]["activations"]


def test_the_table_has_settings_with_what_they_do_to_the_result() -> None:
    """Micro-batches keep it, precision changes it; each has an interval, and most a speed."""
    plan = holter.plan(mlp(256), rows(512), "adamw", nn.functional.cross_entropy, memory="2GB")
    found = {row["name"]: row for row in plan.told["settings"]}

    assert found["as it is"]["keeps"] == "exact"
    assert found["micro-batch 256 × 2"]["keeps"] == "exact"
    assert found["bf16 autocast"]["keeps"] == "changed"
    assert found["SGD"]["keeps"] == "changed"
    assert all(row["peak"]["low"] <= row["peak"]["high"] for row in found.values())
    assert found["bf16 autocast"]["speed"] > 0
    assert json.loads(json.dumps(plan.told)) == plan.told
    assert max(len(line) for line in str(plan).splitlines()) <= 80


def test_a_gpu_that_is_not_here_is_planned_for_with_a_wide_interval() -> None:
    """Its memory has to be said, and the speed is left out with the reason."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    plan = holter.plan(mlp(), rows(64), "adamw", nn.functional.cross_entropy, memory="24GB", device="cuda")

    assert any("no cuda device here" in note for note in plan.told["notes"])
    assert {row["speed"] for row in plan.told["settings"]} == {None}
    assert "speed is left out" in str(plan)


def test_a_gpu_that_is_not_here_needs_its_memory_said() -> None:
    """There is nothing to ask for it."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(ValueError, match="--memory 24GB"):
        holter.plan(mlp(), rows(64), "adamw", nn.functional.cross_entropy, device="cuda")
