"""An update that is non-finite does not reach the weights, and the training goes on: real scripts, unchanged."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agent import agent_run, forked_run
from tests.agent.agent_run import Run
from tests.endings.ward import Case

torch = pytest.importorskip("torch")

from holter.agent.heal.nonfinite_reason import ran_away  # noqa: E402
from holter.agent.torch.heal import nonfinite  # noqa: E402
from holter.agent.torch.heal.snapshot import CantCopy, Snapshot, State  # noqa: E402

pytestmark = pytest.mark.torch
PATIENTS = Path(__file__).parents[1] / "patients"

# One script for many faults. HAND is what a user would write to leave a bad update out.
TRAIN = """
import json, torch
from torch import nn
torch.manual_seed(4)
torch.set_num_threads(1)
x = torch.randn(960, 8)
y = x[:, :1] * 2 + 0.1 * torch.randn(960, 1)
DATA
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=16)
model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
optimizer = OPTIMIZER
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
losses, step = [], 0
for epoch in range(2):
    for a, b in loader:
        step += 1
        loss = nn.functional.mse_loss(model(a), b) / EVERY
        FAULT
        loss.backward()
        if step % EVERY == 0:
            HAND
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses.append(loss.item())
state = [part["exp_avg_sq"].tolist() for part in optimizer.state.values() if "exp_avg_sq" in part]
buffers = [b.tolist() for b in model.buffers()]
print(json.dumps([[p.tolist() for p in model.parameters()], state, buffers, losses[-20:]]))
"""
ADAM = "torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=0.01)"
SGD = "torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, fused=True)"
NAN = "x[421, 3] = float('nan')"
HAND = """if not all(torch.isfinite(p.grad).all() for p in model.parameters()):
                scheduler.step(); optimizer.zero_grad(); continue"""
AMP = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
x, y = torch.randn(64, 8), torch.randn(64, 1)
for step in range(200):
    times = 1e6 if STEPS else 1.0
    with torch.autocast("cpu", dtype=torch.float16):
        loss = ((model(x) - y.half()) * times).pow(2).mean() / times / times
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(loss.item(), scaler.get_scale(), [p.sum().item() for p in model.parameters()])
"""
CASES = {
    "Adam": {"optimizer": ADAM},
    "fused, accumulated": {"optimizer": SGD, "every": 4},
}
HARMLESS = "loss = loss * (1000.0 if step == 40 else 1.0) + (torch.tensor(float('inf')) if step == 80 else 0.0)"
PAIN = (PATIENTS / "torch_ordinal_pain.py").read_text().replace("range(1, 121)", "range(1, 25)")


def script(data: str = "", fault: str = "pass", hand: str = "pass", optimizer: str = ADAM, every: int = 1) -> str:
    text = TRAIN.replace("DATA", data).replace("FAULT", fault).replace("HAND", hand)
    return text.replace("OPTIMIZER", optimizer).replace("EVERY", str(every))


def run(folder: Path, text: str, agent: bool = True, **environ: str) -> Run:
    return forked_run.run(folder, text, agent, OMP_NUM_THREADS="1", **environ)


def printed(done: Run) -> Any:
    assert done.code == 0, done.err
    assert done.kind("guest-error") == []
    return json.loads(done.out.splitlines()[-1])


def finite(parts: Any) -> bool:
    if isinstance(parts, list):
        return all(finite(part) for part in parts)
    return bool(parts - parts == 0.0)


def acts(done: Run) -> list[str]:
    return [event["act"] for event in done.kind("intervention")]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is printed without the agent by the scripts that a healed one is held against."""
    scripts = {
        "harmless": script(fault=HARMLESS),
        "scaler": AMP.replace("STEPS", "step % 60 == 30"),
        **{case: script(NAN, hand=HAND, **how) for case, how in CASES.items()},  # type: ignore[arg-type]
    }
    folders = {name: tmp_path_factory.mktemp("alone") for name in scripts}
    found = agent_run.printed_alone({folders[name]: text for name, text in scripts.items()}, OMP_NUM_THREADS="1")
    return {name: found[folder] for name, folder in folders.items()}


def test_a_run_whose_updates_are_numbers_is_the_same_to_the_last_bit(tmp_path: Path, alone: dict[str, str]) -> None:
    """A loss a thousand times the usual one is left alone, and so is one that reads inf for a term without gradient."""
    armed = agent_run.run(tmp_path / "armed", script(fault=HARMLESS), HOLTER_HEAL="1", OMP_NUM_THREADS="1")

    assert armed.code == 0, armed.err
    assert armed.out == alone["harmless"]
    assert armed.kind("guest-error") == armed.kind("intervention") == armed.kind("declined") == []
    assert {event["act"] for event in armed.kind("armed")} >= {"hold-update"}


def test_looks_at_the_batch_take_a_small_share_of_the_time_however_often_the_loss_is_bad(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the gradients stay finite, so that no update is ever held back: eight looks, then one part in 20."""
    now, looks = 0, 0

    def look(*_: Any) -> dict[str, Any]:
        nonlocal now, looks
        now, looks = now + 10_000_000, looks + 1
        return {}

    heal = nonfinite.NanHeal.__new__(nonfinite.NanHeal)
    heal.looks = heal.next_look = 0
    heal.torch, heal.inputs, heal.acts = torch, {}, SimpleNamespace(held=0)
    heal.watch = SimpleNamespace(look=SimpleNamespace(spike=look), batch=SimpleNamespace(calls=[]))
    monkeypatch.setattr(nonfinite, "monotonic_ns", lambda: now)
    for _ in range(1000):
        now += 1_000_000
        heal._wrong_with_batch(math.nan, None)
    assert 8 < looks <= 8 + 1 + 1000 / 200 * 1.1


@pytest.mark.parametrize("case", CASES)
def test_a_bad_batch_is_left_out_as_if_by_hand(tmp_path: Path, case: str, alone: dict[str, str]) -> None:
    """Weights and moments are those of a loop that leaves it out itself, the statistics are numbers, steps count on."""
    wanted = json.loads(alone[case].splitlines()[-1])
    healed = run(tmp_path / "healed", script(NAN, **CASES[case]), HOLTER_HEAL="1")  # type: ignore[arg-type]
    weights, moments, buffers, losses = printed(healed)

    assert (weights, moments, losses) == (wanted[0], wanted[1], wanted[3])
    assert finite([weights, buffers])
    assert not finite(wanted[2])
    every = 4 if "accumulated" in case else 1
    first, again = healed.kind("intervention")
    assert (first["act"], first["keeps"], first["step"]) == ("hold-update", "equivalent", -(-27 // every))
    assert "`input 0` holds NaN in sample 421 of the dataset" in first["text"]
    assert again["step"] - first["step"] == 60 // every
    assert healed.slots[-1].step == 120 // every


def test_a_gradient_that_is_infinite_under_a_finite_loss_does_not_reach_the_weights(tmp_path: Path) -> None:
    """In the last layer, where neither the loss nor the first layers show it: held back, or undone at the next step."""
    fault = "model[4].bias.register_hook(lambda g: g * (float('inf') if step == 50 else 1)) if step == 1 else None"
    healed = run(tmp_path, script(fault=fault), HOLTER_HEAL="1")

    assert finite(printed(healed))
    assert acts(healed) in (["hold-update"], ["go-back"])
    assert healed.kind("intervention")[0]["step"] in (50, 51)


def test_weights_that_are_no_numbers_go_back_to_the_last_good_state(tmp_path: Path) -> None:
    """Something outside the optimizer spoils them: the state of some steps before is put back, moments and all."""
    fault = "model[0].weight.data[0, 0] = float('nan') if step == 90 else model[0].weight.data[0, 0]"
    fault += "; print(json.dumps([p.tolist() for p in model.parameters()]))"  # as this step's forward found them
    healed = run(tmp_path, script(fault=fault), HOLTER_HEAL="1")

    assert finite(printed(healed))
    (told,) = healed.kind("intervention")
    assert (told["act"], told["keeps"]) == ("go-back", "equivalent")
    found = re.search("the weights are non-finite at step 91: back to the state of step ([0-9]+)", told["text"])
    assert found is not None, told["text"]
    steps = healed.out.splitlines()  # which state was the last kept goes by time: it is that one to the last bit
    assert steps[92 - 1] == steps[int(found[1])]


def test_what_comes_again_after_going_back_is_let_go_with_its_cause(tmp_path: Path) -> None:
    """It does not loop: the run ends as it would have, and the line that makes non-finites is named."""
    fault = "loss = loss * torch.log(loss.detach() * 0 - 1) if step > 60 else loss"
    healed = run(tmp_path, script(fault=fault), HOLTER_HEAL="1")
    weights, *_ = printed(healed)

    assert not finite(weights)
    assert set(acts(healed)) == {"hold-update", "go-back"}
    assert acts(healed).count("go-back") == 1
    (told,) = healed.kind("declined")
    assert "the last 3 updates were non-finite again" in told["because"]


def test_data_that_is_bad_everywhere_is_let_go(tmp_path: Path) -> None:
    """A training of which most is left out would only look like one."""
    healed = run(tmp_path, script("x[160:, 3] = float('nan')"), HOLTER_HEAL="1")

    (told,) = healed.kind("declined")
    assert "updates were non-finite: `input 0` holds NaN in feature 3 of every sample" in told["because"]
    assert told["step"] == 43
    assert len(healed.kind("intervention")) < 10


def test_a_loss_scaler_that_skips_a_step_now_and_then_is_left_alone(tmp_path: Path, alone: dict[str, str]) -> None:
    """It judges the gradients itself; the run is the same to the last bit."""
    healed = run(tmp_path / "healed", AMP.replace("STEPS", "step % 60 == 30"), HOLTER_HEAL="1")

    assert (healed.out, healed.code) == (alone["scaler"], 0)
    assert healed.kind("intervention") == healed.kind("declined") == []


def test_a_loss_scale_that_collapses_is_declined_with_the_cure(tmp_path: Path) -> None:
    """Another precision is the user's to choose."""
    text = AMP.replace("STEPS", "step > 80")
    healed = run(tmp_path, text, HOLTER_HEAL="1")

    assert healed.code == 0
    (told,) = healed.kind("declined")
    assert told["because"].endswith("whose largest is 65,504: train in bfloat16")
    assert healed.kind("intervention") == []
    assert healed.out.startswith("inf")


def test_elements_at_the_edge_of_a_function_are_not_left_out_one_by_one(tmp_path: Path) -> None:
    """A cross entropy written by hand meets the logarithm of zero: updates are skipped, and then its line is named."""
    healed = run(tmp_path, PAIN, HOLTER_HEAL="1")

    assert healed.code == 0
    assert set(acts(healed)) <= {"hold-update", "go-back"}
    # How often gradients are read goes by time: it lets go at last, or the run is over before.
    told = [*(one["text"] for one in healed.kind("intervention")), *(one["because"] for one in healed.kind("declined"))]
    assert any("`log` at line 20" in one for one in told), told


def test_the_step_of_a_closure_is_judged_inside_it(tmp_path: Path) -> None:
    """Lightning hands forward and backward to the optimizer's own step."""
    text = """
import torch
from torch import nn
torch.manual_seed(1)
model = nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(60):
    x = torch.randn(16, 4)
    if step == 30:
        x[5] = float("inf")
    def closure():
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        return loss
    optimizer.step(closure)
print([p.isfinite().all().item() for p in model.parameters()], optimizer.state[model.bias]["step"].item())
"""
    healed = run(tmp_path, text, HOLTER_HEAL="1")

    assert healed.out.strip() == "[True, True] 59.0"
    assert acts(healed) == ["hold-update"]


def test_a_rate_that_is_too_high_is_declined_with_the_cure(tmp_path: Path) -> None:
    """From end to end: another rate is the user's to choose, and the run ends with its true cause."""
    case = Case(tmp_path, (PATIENTS / "torch_house_prices.py").read_text())
    case.start(options=["--heal"]).finish()
    verdict = case.verdict()

    acts = [(one["act"], one["done"], one["keeps"]) for one in verdict["interventions"]]
    assert acts == [("hold-update", False, None)]
    assert "lower the learning rate of 0.031, or clip the gradients" in " ".join(case.err.split())
    assert math.isnan(float(case.out.split()[-1]))
    assert verdict["findings"][0]["cause"] == "nan.learning-rate"


# --- the parts ------------------------------------------------------------------------------------------------------


def trained(make: Any, steps: int = 3) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
    optimizer = make(model.parameters(), lr=0.01)
    for _ in range(steps):
        _step(model, optimizer)
    return model, optimizer


def _step(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()


def everything(model: Any, optimizer: Any) -> list[Any]:
    state = optimizer.state_dict()["state"]
    return [t.clone() for t in model.state_dict().values()] + [
        torch.as_tensor(value).clone() for part in state.values() for value in part.values() if value is not None
    ]


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "NAdam"])
def test_a_state_that_is_put_back_is_the_one_that_was_kept(name: str) -> None:
    """Weights, statistics and moments, into the very tensors that the user refers to."""
    model, optimizer = trained(getattr(torch.optim, name))
    places = [p.data_ptr() for p in model.parameters()]
    wanted, snapshot = everything(model, optimizer), Snapshot(torch)
    snapshot.take(State(torch, [optimizer], [model], []), 3)
    for _ in range(4):
        _step(model, optimizer)
    state = State(torch, [optimizer], [model], [])
    assert snapshot.is_of(state)
    snapshot.put_back(state)

    found = everything(model, optimizer)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert places == [p.data_ptr() for p in model.parameters()]


def test_moments_that_were_begun_since_are_begun_again() -> None:
    """A state kept before the first step has none."""
    model, optimizer = trained(torch.optim.Adam, steps=0)
    snapshot = Snapshot(torch)
    snapshot.take(State(torch, [optimizer], [model], []), 1)
    _step(model, optimizer)
    snapshot.put_back(State(torch, [optimizer], [model], []))

    assert len(optimizer.state) == 0


def test_another_model_at_the_same_address_is_not_taken_for_this_one() -> None:
    """A loop over folds makes its models anew."""
    model, optimizer = trained(torch.optim.Adam)
    snapshot = Snapshot(torch)
    snapshot.take(State(torch, [optimizer], [model], []), 3)
    other = torch.optim.Adam(model.parameters())

    assert not snapshot.is_of(State(torch, [other], [model], []))


def test_an_optimizer_with_a_state_of_unknown_kinds_is_declined() -> None:
    """LBFGS keeps lists of its past directions."""
    model, optimizer = trained(torch.optim.SGD)
    optimizer.state[model[0].weight]["past"] = [torch.zeros(3)]

    with pytest.raises(CantCopy, match="keeps a list"):
        State(torch, [optimizer], [model], [])


@pytest.mark.parametrize(
    ("losses", "away"),
    [
        ([1.0, 0.9, 0.8, 0.7] * 4, False),
        ([1.0, 0.9, 1.1, 1.0, 300.0, 1.2, 1.0, 0.9], False),  # a spike that is over
        ([2.0, 2.1, 5.0, 30.0, 400.0, 9e4], True),
        ([-5.0, -6.0, -7.0, -8.0, -9.0], False),
        ([1.0], False),
    ],
)
def test_a_loss_that_runs_away_is_told_from_one_that_does_not(losses: list[float], away: bool) -> None:
    """Spikes are over when a loss is back at its level."""
    assert (ran_away(losses) is not None) is away


RUN_OFF = """
import torch

torch.manual_seed(0)
x = torch.randn(256, 8)
y = x @ torch.arange(8.0)[:, None]
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=100.0, momentum=0.5)
for _step in range(900):
    loss = (model(x) - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    optimizer.step()
print(loss.item(), [p.sum().item() for p in model.parameters()])
"""


def test_a_loss_that_ran_away_and_stays_a_number_is_left_alone(tmp_path: Path) -> None:
    """It is the run that the script has asked for, to the last bit."""
    plain = run(tmp_path / "plain", RUN_OFF, agent=False)
    healed = run(tmp_path / "all", RUN_OFF, HOLTER_HEAL="1")

    assert healed.out == plain.out
    assert healed.kind("intervention") == healed.kind("declined") == []
