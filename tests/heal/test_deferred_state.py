"""Between a call and the time at which its outputs are computed things change: what is told is as of the call."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.utils.checkpoint import checkpoint  # noqa: E402

from holter.agent.torch.heal.split import Split  # noqa: E402
from tests.heal.test_by_sample import SIZE, STEPS, as_before, both, net  # noqa: E402, F401 - a fixture
from tests.heal.test_split_batch import Agent, Tight  # noqa: E402

pytestmark = pytest.mark.torch


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.blocks = nn.Linear(8, 8), net()

    def forward(self, x: Any) -> Any:
        return checkpoint(self.blocks, self.first(x).tanh(), use_reentrant=False)


def test_what_a_checkpoint_computes_again_is_not_a_call_of_its_own() -> None:
    """After a restart each call is run in chunks from the first on: not that of a part within a backward."""
    found = []
    x, y = torch.randn(SIZE, 8), torch.randint(0, 3, (SIZE,))
    for asked in (1, 4):
        torch.manual_seed(0)
        agent, model = Agent(), Checkpointed()
        split = Split(agent, torch, lambda: False)
        split.asked = asked
        split.watch([model])
        F.cross_entropy(model(x), y).backward()
        found.append([p.grad for p in model.parameters()])
        assert agent.told("declined") == []
    del Checkpointed.__call__

    for want, have in zip(*found, strict=True):
        torch.testing.assert_close(have, want)


class Adapted(nn.Module):
    """Libraries switch an adapter off for the reference, and on again before it is compared with."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.adapter, self.is_on = net(), nn.Linear(8, 3), True

    def forward(self, x: Any) -> Any:
        return self.net(x) + self.adapter(x) if self.is_on else self.net(x)


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As outputs of gigabytes."""
    monkeypatch.setattr("holter.agent.torch.heal.deferred._SMALL_SHARE", 0.0)


def pairs(model: Any, step: Any) -> list[float]:
    optimizer, told = torch.optim.SGD(model.parameters(), lr=0.1), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        told += [one.item() for one in step(model, torch.randn(SIZE, 8), torch.randint(0, 3, (SIZE,)), optimizer)]
    return told


@pytest.mark.usefixtures("nothing_is_small")
@pytest.mark.parametrize("graded", [False, True])
def test_a_reference_with_the_adapter_off_is_computed_with_it_off(graded: bool) -> None:
    def step(model: Any, x: Any, y: Any, optimizer: Any) -> list[Any]:
        with torch.set_grad_enabled(graded):
            model.model.is_on = False
            reference = model(x).log_softmax(1).gather(1, y[:, None]).squeeze(1)
            model.model.is_on = True
        share = model(x).log_softmax(1).gather(1, y[:, None]).squeeze(1)
        loss = -F.logsigmoid(share - reference).mean()
        loss.backward()
        optimizer.step()
        return [loss]

    both(Adapted, lambda model: pairs(model, step))


def test_labels_in_a_buffer_that_is_filled_anew_are_those_of_then() -> None:
    labels = torch.zeros(SIZE, dtype=torch.long)

    def step(model: Any, x: Any, y: Any, optimizer: Any) -> list[Any]:
        labels.copy_(y)
        out = model(x)
        right, loss = (out.argmax(1) == labels).sum(), out.pow(2).mean() + out.mean()
        labels.zero_()
        loss.backward()
        x.zero_()
        optimizer.step()
        return [loss, right, out.sum()]

    both(net, lambda model: pairs(model, step))


def test_figures_of_small_outputs_cost_no_second_call_and_outlast_a_change_of_weights() -> None:
    """A step to a place nearby and back, as sharpness-aware training takes it, is none that an optimizer tells of."""
    seen = []

    def step(model: Any, x: Any, y: Any, optimizer: Any) -> list[Any]:
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        model.seen.sizes.clear()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.05)
        told = [loss, torch.tensor(out.sum().item()), (out.argmax(1) == y).sum()]
        seen.append(len(model.seen.sizes))
        optimizer.step()
        return told

    both(net, lambda model: pairs(model, step))
    assert seen == [0] * 2 * STEPS


@pytest.mark.usefixtures("nothing_is_small")
def test_figures_are_of_the_weights_before_an_update_by_hand() -> None:
    """Of two models in one loss, by `data`, of which PyTorch keeps no count."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = net(), net()

    def loop(pair: Any) -> list[float]:
        told = []
        for _ in range(STEPS):
            x, y = torch.randn(SIZE, 8), torch.randint(0, 3, (SIZE,))
            out = pair.model.one(x)
            guess = out.argmax(1)
            loss = F.cross_entropy(out, y) + pair.model.other(x).pow(2).mean()
            loss.backward()
            for p in pair.parameters():
                p.data -= 0.5 * p.grad
                p.grad = None
            told += [loss.item(), (guess == y).sum().item()]
        return told

    ends = []
    for asked in (1, 4):
        torch.manual_seed(0)
        pair = Tightless(Pair())
        split = Split(Agent(), torch, lambda: False)
        split.asked = asked
        split.watch([pair.model.one, pair.model.other])
        ends.append(loop(pair))
    assert ends[1] == pytest.approx(ends[0], rel=1e-9)


class Tightless(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


@pytest.mark.usefixtures("nothing_is_small")
def test_figures_are_of_a_scale_before_its_own_optimizer_changed_it() -> None:
    def loop(model: Any) -> list[float]:
        scale = nn.Parameter(torch.tensor(1.5))
        other = torch.optim.SGD([scale], lr=0.1)

        def step(model: Any, x: Any, y: Any, optimizer: Any) -> list[Any]:
            out = model(x)
            loss, bent = F.cross_entropy(out * scale, y), out * scale
            loss.backward()
            other.step()
            optimizer.step()
            other.zero_grad()
            return [loss, out.sum(), bent.sum(), scale]

        return pairs(model, step)

    both(net, loop)


def test_weights_that_are_frozen_after_the_backward_do_not_matter() -> None:
    def step(model: Any, x: Any, y: Any, optimizer: Any) -> list[Any]:
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        for p in model.model[0].parameters():
            p.requires_grad_(False)
        told = [loss, out.sum()]
        optimizer.step()
        for p in model.model[0].parameters():
            p.requires_grad_(True)
        return told

    both(net, lambda model: pairs(model, step))


def test_a_label_that_is_no_class_is_told_where_the_script_can_catch_it() -> None:
    def step(model: Any, x: Any, y: Any, optimizer: Any) -> list[Any]:
        y[3] += 2
        try:
            loss = F.cross_entropy(model(x), y)
        except IndexError:
            return []
        loss.backward()
        optimizer.step()
        return [loss]

    both(net, lambda model: pairs(model, step))


@pytest.mark.usefixtures("nothing_is_small")
@pytest.mark.parametrize("by", ["data", "another place"])
def test_an_evaluation_never_tells_numbers_of_other_weights(by: str) -> None:
    """Moving averages are often put in and out again past all counts: what was not read by then is not to be had."""
    torch.manual_seed(0)
    agent, model = Agent(), Tight(net())
    Split(agent, torch, lambda: False).watch([model])
    own, averaged = ([p.detach() + n for p in model.parameters()] for n in (0, 1))

    def put_in(weights: list[Any]) -> None:
        for p, value in zip(model.parameters(), weights, strict=True):
            if by == "data":
                p.data.copy_(value)
            else:
                p.data = value

    x = torch.randn(SIZE, 8)
    with torch.no_grad():
        put_in(averaged)
        wanted, found = model.model(x).sum(), model(x).sum()
        again = model(x).sum()
        assert found.item() == pytest.approx(wanted.item())
        put_in(own)
    with pytest.raises(torch.cuda.OutOfMemoryError, match="changed in place"):
        again.item()


class Giving(nn.Module):
    """Gives its logits and its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x: Any, y: Any) -> Any:
        out = self.net(x)
        return {"logits": out, "loss": F.cross_entropy(out, y)}


class History:
    def __init__(self) -> None:
        self.kept: list[Any] = []


def kept_by_an_object(model: Any) -> list[float]:
    """The outputs have two names meanwhile, and a third within the function that makes the update."""
    optimizer, history = torch.optim.SGD(model.parameters(), lr=0.1), History()

    def update(outputs: Any) -> None:
        outputs["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(STEPS):
        first = second = model(torch.randn(SIZE, 8), torch.randint(0, 3, (SIZE,)))
        history.kept.append(first["logits"])
        update(second)
    return [one.sum().item() for one in history.kept]


def read_where_a_step_fails(model: Any) -> list[float]:
    optimizer, told = torch.optim.SGD(model.parameters(), lr=0.1), []
    for _ in range(STEPS):
        x, y = torch.randn(SIZE, 8), torch.randint(0, 3, (SIZE,))
        logits = model(x, y)["logits"]
        F.cross_entropy(logits, y).backward()
        try:
            optimizer.step()
            raise ValueError
        except ValueError:
            told.append(logits.sum().item())
        optimizer.zero_grad()
    return told


@pytest.mark.usefixtures("nothing_is_small")
@pytest.mark.parametrize("loop", [kept_by_an_object, read_where_a_step_fails])
def test_outputs_that_are_read_after_an_update_are_known_to_be(loop: Any) -> None:
    both(Giving, loop)


def test_labels_are_copied_beside_inputs_that_are_too_large_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holter.agent.torch.heal.deferred.Deferring.small", lambda *_: 8 * SIZE * 4)

    def step(model: Any, x: Any, y: Any, optimizer: Any) -> list[Any]:
        out = model(x)
        right, loss = (out.argmax(1) == y).sum(), out.pow(2).mean()
        y.zero_()
        loss.backward()
        optimizer.step()
        return [loss, right]

    both(net, lambda model: pairs(model, step))
