"""A batch that does not fit is run in chunks, and the update is the whole batch's: for models of many kinds."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from holter.agent.core.guard import Guard  # noqa: E402
from holter.agent.heal.soft_limit import NoWall  # noqa: E402
from holter.agent.torch.heal.split import CacheRelease, Split  # noqa: E402

pytestmark = pytest.mark.torch

FITS = 6  # samples
SIZE = 23
Pair = namedtuple("Pair", "out hidden")


class Agent:
    """Takes down what is said."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.beat = type("Beat", (), {"steps": 0})
        self.guard, self.heal = Guard(self.say), "safe"

    def say(self, kind: str, **fields: Any) -> None:
        self.said.append((kind, fields))

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.said if name == kind]


class Seen:
    """What a model of ours has seen: kept apart from it, since one that changes itself at each call is not split."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.alive: list[int] = []
        self.refs: list[Any] = []


class Tight(nn.Module):
    """A model on a device that has room for a few samples: more of them run out of memory."""

    def __init__(self, model: nn.Module, axis: int = 0, fits: int = FITS) -> None:
        super().__init__()
        self.model, self.axis, self.fits = model, axis, fits
        self.seen = Seen()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        first = (*args, *kwargs.values())[0]
        first = first["x"] if isinstance(first, dict) else first
        self.seen.sizes.append(first.shape[self.axis])
        if first.shape[self.axis] > self.fits:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return self.model(*args, **kwargs)


def mlp() -> nn.Module:
    drop = nn.Dropout(0.2)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 32), drop, nn.Linear(32, 3))


def with_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))


class Nested(nn.Module):
    """Takes a dictionary and a keyword, gives dictionaries, lists and a named tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.drop = nn.Linear(8, 16), nn.Linear(16, 4), nn.Dropout(0.3)

    def forward(self, batch: dict[str, Any], *, extra: float) -> Any:
        hidden = self.drop(torch.relu(self.first(batch["x"] + extra)))
        return {"hidden": hidden, "out": Pair(self.last(hidden), [hidden.sum(1)]), "name": "nested"}


@dataclass
class Output:
    loss: Any
    logits: Any


class Language(nn.Module):
    """Gives the mean loss over the labels that count, as Hugging Face's models do."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)

    def forward(self, input_ids: Any, labels: Any) -> Output:
        logits = self.head(self.embed(input_ids))
        loss = F.cross_entropy(logits[:, :-1].reshape(-1, 50), labels[:, 1:].reshape(-1))
        return Output(loss, logits)


class Recurrent(nn.Module):
    def __init__(self, batch_first: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(8, 16, 2, batch_first=batch_first, dropout=dropout), nn.Linear(16, 3)
        self.batch_first = batch_first

    def forward(self, x: Any, state: Any = None) -> Any:
        out, state = self.rnn(x, state)
        return self.head(out[:, -1] if self.batch_first else out[-1]), state


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(8, 12), nn.Linear(6, 8)

    def forward(self, x: Any) -> Any:
        mean, spread = self.down(x).chunk(2, 1)
        return self.up(mean + torch.randn_like(mean) * spread.exp()), mean, spread


class Attention(nn.Module):
    """Drops in its own functions: inside a kernel, and with a switch of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.all, self.last = nn.Linear(8, 24), nn.Linear(8, 3)
        self.other = nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True)

    def forward(self, x: Any) -> Any:
        query, key, value = self.all(x).chunk(3, -1)
        found = F.scaled_dot_product_attention(query, key, value, dropout_p=0.2 if self.training else 0.0)
        found = self.other(found, found, found, need_weights=False)[0]
        return self.last(F.dropout(found, 0.1, self.training).mean(1))


class Shuffling(nn.Module):
    """Draws an order for its samples, only while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x + x[torch.randperm(len(x))] if self.training else x)


class Listed(nn.Module):
    """Reads its weights from a list of its own, where no stand-in is found."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)
        self.held = [self.layer.weight]

    def forward(self, x: Any) -> Any:
        return x @ self.held[0].T + self.layer.bias


class Centred(nn.Module):
    """Each output depends on all samples."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        found = self.layer(x)
        return found - found.mean(0)


def calm_mlp() -> nn.Module:
    return mlp().eval()


def rows() -> tuple[Any, ...]:
    return torch.randn(SIZE, 8), torch.randint(0, 3, (SIZE,))


def texts() -> tuple[Any, ...]:
    tokens = torch.randint(0, 50, (SIZE, 9))
    labels = tokens.clone()
    for n in range(SIZE):
        labels[n, 9 - n % 7 :] = -100
    return tokens, labels


def sequences() -> tuple[Any, ...]:
    return torch.randn(SIZE, 7, 8), torch.randint(0, 3, (SIZE,)), (torch.randn(2, SIZE, 16), torch.randn(2, SIZE, 16))


def classify(model: Any, batch: Any) -> Any:
    return F.cross_entropy(model(batch[0]), batch[1])


def classify_first(model: Any, batch: Any) -> Any:
    return F.cross_entropy(model(batch[0])[0], batch[1])


def contrast(model: Any, batch: Any) -> Any:
    """A loss over all pairs of the batch."""
    found = F.normalize(model(batch[0]), dim=1)
    return F.cross_entropy(found @ found.T / 0.1, torch.arange(SIZE))


def nested(model: Any, batch: Any) -> Any:
    given = model({"x": batch[0]}, extra=0.5)
    return given["out"].out.pow(2).mean() + given["hidden"].mean() + given["out"].hidden[0].std()


def variational(model: Any, batch: Any) -> Any:
    made, mean, spread = model(batch[0])
    return F.mse_loss(made, batch[0]) + (mean.pow(2) + spread.exp()).mean()


def accumulated(model: Any, batch: Any) -> Any:
    """The user's own accumulation: two backwards before the step."""
    half = F.cross_entropy(model(batch[0][:12]), batch[1][:12]) * 12 / SIZE
    half.backward()
    return F.cross_entropy(model(batch[0][12:]), batch[1][12:]) * 11 / SIZE


def in_bfloat(model: Any, batch: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        given = model(batch[0])
    return F.cross_entropy(given.float(), batch[1])


EXACT: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "a plain net": (calm_mlp, rows, classify),
    "nested outputs": (lambda: Nested().eval(), rows, nested),
    "a loss over all pairs": (calm_mlp, rows, contrast),
    "a mean loss inside": (Language, texts, lambda model, batch: model(input_ids=batch[0], labels=batch[1]).loss),
    "recurrent": (Recurrent, sequences, classify_first),
    "a state that is handed in": (
        Recurrent,
        sequences,
        lambda model, batch: F.cross_entropy(model(batch[0], batch[2])[0], batch[1]),
    ),
    "the user's own accumulation": (calm_mlp, rows, accumulated),
    "mixed precision": (calm_mlp, rows, in_bfloat),
}
DRAWING: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "dropout": (mlp, rows, classify),
    "dropout in containers": (Nested, rows, nested),
    "noise": (Variational, rows, variational),
    "a recurrent layer's own dropout": (lambda: Recurrent(dropout=0.5), sequences, classify_first),
    "attention's own dropout": (Attention, sequences, classify),
}


def gradients(model: nn.Module, loss: Any) -> list[Any]:
    loss.backward()
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def both(
    make: Callable[[], nn.Module], data: Callable[[], Any], step: Callable[[Any, Any], Any], axis: int = 0
) -> tuple[Agent, list[Any], list[Any], tuple[float, float], tuple[Any, Any]]:
    """One step with room for all, and one with room for a few: gradients, losses and the random state after it."""
    torch.manual_seed(0)
    model, batch, agent = make(), data(), Agent()
    torch.manual_seed(1)
    whole = step(model, batch)
    wanted, state = gradients(model, whole), torch.get_rng_state()
    model.zero_grad()
    tight = Tight(model, axis)
    Split(agent, torch, lambda: False).watch([tight])
    torch.manual_seed(1)
    parts = step(tight, batch)
    found = gradients(tight, parts)
    return agent, wanted, found, (whole.item(), parts.item()), (state, torch.get_rng_state())


@pytest.fixture(autouse=True)
def as_before() -> Any:
    """Classes are patched for the length of a test."""
    classes = (
        Tight,
        Late,
        Branches,
        nn.Sequential,
        Nested,
        Language,
        Recurrent,
        Variational,
        Listed,
        Centred,
        Attention,
        Shuffling,
        Dropped,
        Numbered,
        Counting,
        nn.Linear,
    )
    before = {cls: cls.__dict__.get("__call__") for cls in classes}
    yield
    for cls, call in before.items():
        if call is not None:
            cls.__call__ = call
        elif "__call__" in cls.__dict__:
            del cls.__call__


@pytest.mark.parametrize("kind", EXACT)
def test_the_gradients_are_those_of_the_whole_batch(kind: str) -> None:
    """Same loss, same gradients within rounding, the same random numbers for whatever comes after."""
    agent, wanted, found, losses, states = both(*EXACT[kind])

    assert losses[0] == pytest.approx(losses[1], rel=1e-2 if kind == "mixed precision" else 1e-5)
    for want, have in zip(wanted, found, strict=True):
        rough = kind == "mixed precision"
        torch.testing.assert_close(have, want, rtol=0.05 if rough else 1e-4, atol=1e-2 if rough else 1e-6)
    assert torch.equal(*states)
    assert [told["keeps"] for told in agent.told("intervention")[:1]] == ["exact"]


def test_samples_along_the_second_axis_are_found() -> None:
    """Recurrent models often take the time first."""

    def data() -> Any:
        return torch.randn(7, SIZE, 8), torch.randint(0, 3, (SIZE,))

    agent, wanted, found, losses, _ = both(lambda: Recurrent(batch_first=False), data, classify_first, axis=1)

    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for want, have in zip(wanted, found, strict=True):
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-6)
    assert agent.told("intervention")[0]["keeps"] == "exact"


def test_batchnorm_is_split_and_said_to_be_equivalent() -> None:
    """Each chunk has its own statistics; running ones move about as far as with the full batch, and count it once."""
    torch.manual_seed(0)
    model, batch, agent = with_norm(), rows(), Agent()
    before = model[1].running_mean.clone()
    whole = with_norm()
    whole.load_state_dict(model.state_dict())
    classify(whole, batch).backward()
    tight = Tight(model)
    Split(agent, torch, lambda: False).watch([tight])
    classify(tight, batch).backward()

    moved, wanted = model[1].running_mean - before, whole[1].running_mean - before
    torch.testing.assert_close(moved, wanted, rtol=0.2, atol=0.02)
    assert model[1].num_batches_tracked == 1
    told = agent.told("intervention")[0]
    assert (told["keeps"], "BatchNorm" in told["because"]) == ("equivalent", True)


@pytest.mark.parametrize("kind", DRAWING)
def test_a_model_that_draws_is_split_and_said_to_be_equivalent(kind: str) -> None:
    """Each chunk draws what is its own, once: its backward leaves the generator where the forward left it."""
    make, data, step = DRAWING[kind]
    torch.manual_seed(0)
    model, batch, agent = make(), data(), Agent()
    tight = Tight(model)
    Split(agent, torch, lambda: False).watch([tight])
    loss = step(tight, batch)
    loss.item()
    state = torch.get_rng_state()
    found = gradients(tight, loss)

    (told,) = agent.told("intervention")
    assert (told["keeps"], told["because"]) == ("equivalent", "random numbers are drawn for each chunk")
    assert torch.equal(torch.get_rng_state(), state)
    assert all(gradient is not None and torch.isfinite(gradient).all() for gradient in found)
    assert agent.told("declined") == []


class Dropped(nn.Module):
    """Shows its masks: what is dropped is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.drop = nn.Linear(8, 16, bias=False), nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        return self.drop(self.layer(x))


def test_what_is_computed_again_has_the_masks_of_the_forward() -> None:
    """The gradient is that of the very outputs which the loss has seen."""
    torch.manual_seed(0)
    model, x, agent = Dropped(), rows()[0], Agent()
    tight = Tight(model)
    Split(agent, torch, lambda: False).watch([tight])
    out = tight(x)
    given = torch.randn_like(out)
    out.backward(given)

    wanted = (given * 2.0 * (out.detach() != 0)).T @ x
    torch.testing.assert_close(model.layer.weight.grad, wanted, rtol=1e-4, atol=1e-5)


def test_a_model_that_draws_an_order_of_its_samples_is_declined() -> None:
    """What only training does is proven in training."""
    agent, tight = Agent(), Tight(Shuffling())
    Split(agent, torch, lambda: False).watch([tight])

    with pytest.raises(torch.cuda.OutOfMemoryError, match="Tried to allocate"):
        classify(tight, rows())
    (told,) = agent.told("declined")
    assert (
        told["because"]
        == "it draws random numbers of its own (rand, randint, randperm), which may belong to the whole batch"
    )


def test_a_slice_of_a_model_is_split_though_it_is_gone_when_its_backward_comes() -> None:
    """`model[:1](x)` makes a model for the length of the call."""
    torch.manual_seed(0)
    model, batch, agent = nn.Sequential(Tight(mlp().eval()), nn.ReLU()), rows(), Agent()
    inner = model[0].model
    classify(inner, batch).backward()
    wanted = inner[0].weight.grad.clone()
    inner.zero_grad()
    Split(agent, torch, lambda: False).watch([model])
    loss = F.cross_entropy(model[:1](batch[0]), batch[1])
    gc.collect()
    loss.backward()

    torch.testing.assert_close(inner[0].weight.grad, wanted, rtol=1e-4, atol=1e-6)
    assert [told["model"] for told in agent.told("intervention")] == ["Sequential"]
    assert agent.told("declined") == []


def test_inputs_that_need_gradients_get_them() -> None:
    """Another model may lie before this one."""
    torch.manual_seed(0)
    model, x, agent = mlp().eval(), torch.randn(SIZE, 8), Agent()
    scale = torch.ones(8, requires_grad=True)
    (wanted,) = torch.autograd.grad(model(x * scale).pow(2).sum(), scale)
    tight = Tight(model)
    Split(agent, torch, lambda: False).watch([tight])
    tight(x * scale).pow(2).sum().backward()

    torch.testing.assert_close(scale.grad, wanted, rtol=1e-4, atol=1e-5)


def test_hooks_on_a_weight_see_one_whole_gradient() -> None:
    """Clipping hooks, and optimizers that step within backward, act once."""
    torch.manual_seed(0)
    model, batch, agent, seen = mlp().eval(), rows(), Agent(), []
    classify(model, batch).backward()
    wanted = model[0].weight.grad.clone()
    model.zero_grad()
    model[0].weight.register_hook(lambda gradient: seen.append(gradient.clone()))
    tight = Tight(model)
    Split(agent, torch, lambda: False).watch([tight])
    classify(tight, batch).backward()

    assert len(seen) == 1
    torch.testing.assert_close(seen[0], wanted, rtol=1e-4, atol=1e-6)


def test_second_order_gradients_of_a_call_in_parts_are_declined() -> None:
    """A gradient penalty needs a graph of the backward, and there is none: the run ends for want of memory."""
    torch.manual_seed(0)
    model, agent = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)), Agent()
    x = torch.randn(SIZE, 8, requires_grad=True)
    tight = Tight(model)
    Split(agent, torch, lambda: False).watch([tight])
    given = tight(x).sum()

    with pytest.raises(torch.cuda.OutOfMemoryError, match="second-order gradients are taken through the model"):
        torch.autograd.grad(given, x, create_graph=True)
    assert [told["because"] for told in agent.told("declined")] == [
        "second-order gradients are taken through the model"
    ]


def test_weights_that_change_between_forward_and_backward_are_declined() -> None:
    """The chunks that were dropped can't be computed again."""
    agent, tight = Agent(), Tight(calm_mlp())
    Split(agent, torch, lambda: False).watch([tight])
    loss = classify(tight, rows())
    with torch.no_grad():
        next(tight.parameters()).add_(1.0)

    with pytest.raises(torch.cuda.OutOfMemoryError, match="inputs or weights were changed in place"):
        loss.backward()
    assert len(agent.told("declined")) == 1


class Numbered(nn.Module):
    """Gives numbers beside its samples: one that is the same for each call, and how many samples there were."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x), torch.tensor(5), torch.tensor(len(x))


def test_whole_numbers_beside_the_samples_are_those_of_the_full_batch() -> None:
    tight = Tight(Numbered())
    Split(Agent(), torch, lambda: False).watch([tight])
    _, same, count = tight(rows()[0])

    assert (same.item(), count.item()) == (5, SIZE)


def test_a_model_on_another_device_is_declined_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Metal and others it is not known when an allocation will fail."""
    monkeypatch.setattr("holter.agent.torch.heal.split.DEVICES", ("cuda",))
    agent, tight = Agent(), Tight(calm_mlp())
    Split(agent, torch, lambda: False).watch([tight])
    for _ in range(2):
        with pytest.raises(torch.cuda.OutOfMemoryError, match="Tried to allocate"):
            classify(tight, rows())

    (told,) = agent.told("declined")
    assert told["because"] == "its weights lie on cpu: a batch is split on a CPU or with CUDA alone"


class Mixing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x - x.mean(0))


def test_a_model_that_mixes_samples_is_declined_and_the_error_is_the_users() -> None:
    """Nothing is made up: the run ends as it would have, and the reason is told once."""
    agent = Agent()
    tight = Tight(Mixing())
    Split(agent, torch, lambda: False).watch([tight])

    for _ in range(2):
        with pytest.raises(torch.cuda.OutOfMemoryError, match="Tried to allocate"):
            classify(tight, rows())
    assert [told["because"] for told in agent.told("declined")] == [
        "the samples of a batch depend on each other inside the model"
    ]
    assert agent.told("intervention") == []


def test_a_single_sample_that_does_not_fit_is_declined() -> None:
    """There is nothing left to split."""
    agent = Agent()
    tight = Tight(mlp(), fits=0)
    Split(agent, torch, lambda: False).watch([tight])

    with pytest.raises(torch.cuda.OutOfMemoryError):
        classify(tight, rows())
    assert len(agent.told("declined")) == 1


class Late(nn.Module):
    """Runs out of memory when all of it has been computed, dropout masks and all."""

    def __init__(self) -> None:
        super().__init__()
        self.model = mlp()

    def forward(self, x: Any) -> Any:
        found = self.model(x)
        if len(x) > 3:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return found


def test_masks_of_a_failed_attempt_do_not_make_it_try_the_same_again() -> None:
    """Each attempt draws its masks, and each failure makes the parts smaller."""
    agent = Agent()
    late = Late()
    Split(agent, torch, lambda: False).watch([late])
    classify(late, rows()).backward()

    assert agent.told("intervention")[-1]["rows"] <= 3


class Failing(torch.autograd.Function):
    """Has room for a few samples in its backward."""

    @staticmethod
    def forward(_ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, gradient: Any) -> Any:
        if len(gradient) > FITS:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return gradient


class Branches(nn.Module):
    """Two branches, of which one is still to come when the other fails."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.seen = nn.Linear(8, 3), Seen()

    def forward(self, x: Any) -> Any:
        self.seen.alive.append(sum(ref() is not None for ref in self.seen.refs))
        hidden = self.layer(x)
        other = torch.sin(hidden)
        self.seen.refs = [weakref.ref(hidden)] if len(x) > FITS else []
        return other + Failing.apply(hidden)


def test_a_backward_in_chunks_that_fails_is_run_again_with_its_memory_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gradients are the whole batch's, and nothing of the failed attempt is alive during the next."""
    monkeypatch.setenv("HOLTER_SPLIT", "2")
    torch.manual_seed(0)
    model, batch, agent = Branches(), rows(), Agent()
    wanted = nn.Linear(8, 3)
    wanted.load_state_dict(model.layer.state_dict())
    hidden = wanted(batch[0])
    F.cross_entropy(torch.sin(hidden) + hidden, batch[1]).backward()
    Split(agent, torch, lambda: False).watch([model])
    classify(model, batch).backward()

    torch.testing.assert_close(model.layer.weight.grad, wanted.weight.grad, rtol=1e-4, atol=1e-6)
    assert agent.told("intervention")[-1]["rows"] <= FITS
    assert not any(model.seen.alive)


def test_a_backward_that_fails_in_the_users_own_graph_ends_with_the_users_own_error() -> None:
    """Nothing of ours is in that graph, however near the limit it is; the next attempt is split from its first step."""
    model, agent = Branches(), Agent()
    Split(agent, torch, lambda: False).watch([model])
    loss = classify(model, rows())

    assert "Cut" not in loss.grad_fn.next_functions[0][0].name()
    with pytest.raises(torch.cuda.OutOfMemoryError, match="Tried to allocate"):
        loss.backward()
    assert agent.said == []


def test_another_error_of_the_model_is_none_of_ours() -> None:
    """Only what says that memory ran out is acted upon."""
    agent = Agent()
    model = mlp()
    Split(agent, torch, lambda: False).watch([model])

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model(torch.randn(4, 5))
    assert agent.said == []


def test_without_want_of_memory_nothing_is_cut() -> None:
    """The graph is the user's own, and so is every bit of the result."""
    torch.manual_seed(0)
    model, batch, agent = mlp(), rows(), Agent()
    torch.manual_seed(1)
    wanted = model(batch[0])
    Split(agent, torch, lambda: False).watch([model])
    torch.manual_seed(1)
    found = model(batch[0])

    assert torch.equal(found, wanted)
    assert found.grad_fn.name() == wanted.grad_fn.name()
    assert agent.said == []


@pytest.mark.parametrize("kind", [kind for kind in EXACT if "accumulation" not in kind])
def test_an_evaluation_that_does_not_fit_is_run_in_parts(kind: str) -> None:
    """With the same outputs, and the same random numbers for whatever comes after; only the first one fails first."""
    make, data, evaluate = EXACT[kind]
    torch.manual_seed(0)
    model, batch, agent = make(), data(), Agent()
    tight = Tight(model)

    def seeded(model: Any) -> Any:
        torch.manual_seed(1)
        with torch.no_grad():
            return evaluate(model, batch).item(), torch.get_rng_state()

    wanted, state = seeded(model)
    Split(agent, torch, lambda: False).watch([tight])
    for fails in (True, False):
        tight.seen.sizes.clear()
        found, after = seeded(tight)
        assert found == pytest.approx(wanted, rel=1e-2 if kind == "mixed precision" else 1e-5)
        assert torch.equal(after, state)
        assert (max(tight.seen.sizes) > FITS) is fails
    (told,) = agent.told("intervention")
    text = "the 23 samples of an evaluation did not fit: they are run in 5 chunks of up to 5"
    assert (told["keeps"], told["text"]) == ("exact", text)


def test_a_small_evaluation_after_a_large_one_is_run_whole() -> None:
    agent, tight = Agent(), Tight(mlp().eval())
    Split(agent, torch, lambda: False).watch([tight])
    x = rows()[0]
    with torch.no_grad():
        tight(x)
        for few in (1, 5):
            torch.testing.assert_close(tight(x[:few]), tight.model(x[:few]))
    assert len(agent.told("intervention")) == 1


def test_an_evaluation_that_compares_its_samples_ends_with_its_own_error() -> None:
    agent = Agent()
    tight = Tight(Centred())
    Split(agent, torch, lambda: False).watch([tight])

    with torch.no_grad(), pytest.raises(torch.cuda.OutOfMemoryError, match="Tried to allocate"):
        tight(rows()[0])
    (told,) = agent.told("declined")
    assert told["because"] == "an evaluation: the samples of a batch depend on each other inside the model"


def test_an_evaluation_of_no_samples_that_does_not_fit_ends_with_its_own_error() -> None:
    """Also where one of the same shape has been run in parts: of nothing there are none."""
    agent, tight = Agent(), Tight(mlp().eval())
    Split(agent, torch, lambda: False).watch([tight])
    x = rows()[0]
    with torch.no_grad():
        tight(x)
        tight.fits = -1
        with pytest.raises(torch.cuda.OutOfMemoryError, match="Tried to allocate"):
            tight(x[:0])

    (told,) = agent.told("declined")
    assert told["because"] == "an evaluation: the batch has no samples"


def test_an_evaluation_that_fits_is_left_as_it_is() -> None:
    agent = Agent()
    model = mlp().eval()
    x = rows()[0]
    wanted = model(x)
    Split(agent, torch, lambda: False).watch([model])

    with torch.no_grad():
        found = model(x)
    assert torch.equal(found, wanted)
    assert agent.said == []


def test_a_restart_may_ask_for_parts_from_the_first_step_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was killed without a word is not tried whole once more."""
    monkeypatch.setenv("HOLTER_SPLIT", "4")
    torch.manual_seed(0)
    model, batch, agent = Tight(mlp().eval(), fits=SIZE), rows(), Agent()
    wanted = gradients(model, classify(model, batch))
    model.zero_grad()
    model.seen.sizes.clear()
    Split(agent, torch, lambda: False).watch([model])
    found = gradients(model, classify(model, batch))

    assert max(model.seen.sizes) == 6
    for want, have in zip(wanted, found, strict=True):
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-6)


def tight_model() -> tuple[Agent, Any, Any, list[int]]:
    """Who is told, a tight model, what is known of it, and the sizes it was run with."""
    agent = Agent()
    tight = Tight(mlp().eval())
    split = Split(agent, torch, lambda: False)
    split.watch([tight])
    return agent, tight, split._state(tight), tight.seen.sizes


def test_the_size_that_fits_is_remembered() -> None:
    """Only the first step of a shape has to find out."""
    agent, tight, _state, attempts = tight_model()
    for again in (False, True, True):
        attempts.clear()
        classify(tight, rows()).backward()
        assert (max(attempts) <= FITS) is again

    assert len(agent.told("intervention")) == 1


def test_an_odd_batch_does_not_make_the_parts_of_others_smaller() -> None:
    """A batch that is one sample too large runs in halves, and those that fit are run at once as before."""
    _agent, tight, state, attempts = tight_model()
    x, y = rows()
    classify(tight, (x, y)).backward()
    found = min(state.rows.values())
    for size in (found + 1, found):
        attempts.clear()
        classify(tight, (x[:size], y[:size])).backward()

    assert attempts == [found]


def test_nothing_of_a_step_outlives_it() -> None:
    """Inputs and graphs go when the user's loss goes."""
    agent = Agent()
    tight = Tight(mlp())
    Split(agent, torch, lambda: False).watch([tight])
    x, y = rows()
    gone = weakref.ref(x)
    loss = F.cross_entropy(tight(x), y)
    loss.backward()
    del x, loss
    gc.collect()

    assert gone() is None


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_where_a_device_has_no_room_for_a_graph_there_is_none_to_empty_its_queue_with() -> None:
    """A backward that failed then ends with its own error, and nothing is printed in between."""
    release = CacheRelease(torch, torch.device("cuda", 99))
    release.empty()

    assert release.pair is None


def test_where_no_thread_can_be_started_the_model_is_called_all_the_same() -> None:
    model, x, agent = mlp().eval(), rows()[0], Agent()
    wanted = model(x)
    Split(agent, torch, lambda: False).watch([model])
    before = threading.stack_size(1 << 47)  # more than there are addresses
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threading.Thread(target=print).start()
        found = model(x)
    finally:
        threading.stack_size(before)

    assert torch.equal(found, wanted)


class Counting(nn.Module):
    """Moves what it holds at each call, and runs out of memory after that as long as there is a wall before it."""

    average: Any

    def __init__(self, wall: Any) -> None:
        super().__init__()
        self.layer, self.wall, self.calls = nn.Linear(8, 3), wall, 0
        self.kept: list[Any] = []
        self.register_buffer("average", torch.zeros(8))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.kept.append(x.mean())
        self.average.mul_(0.9).add_(x.mean(0))
        x = x + torch.rand(())
        if getattr(self.wall, "deep", 0):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return self.layer(x + self.average) * self.calls


class Wall:
    """One before the kernel's own: what fails there may go through without it."""

    deep = 0

    def at(self) -> int:
        return 1

    def move(self, by: int) -> None:
        """It stays."""

    def __enter__(self) -> None:
        self.deep += 1

    def __exit__(self, *_: object) -> None:
        self.deep -= 1


@pytest.mark.parametrize("trained", [True, False])
def test_a_call_that_is_made_again_as_it_was_finds_all_as_it_was(trained: bool) -> None:
    """A wall before the kernel's limit stops it half way: what it had counted, kept and drawn is not there twice."""
    agent, wall = Agent(), Wall()
    agent.wall = wall  # type: ignore[attr-defined]
    torch.manual_seed(0)
    free, tight = Counting(NoWall()), Counting(wall)
    tight.load_state_dict(free.state_dict())
    Split(agent, torch, lambda: False).watch([tight])
    batch = torch.randn(SIZE, 8)

    found = []
    for model in (free, tight):
        torch.manual_seed(1)
        with torch.set_grad_enabled(trained):
            out = model(batch)
        found.append((out.detach(), model.calls, len(model.kept), model.average.clone(), torch.get_rng_state()))

    assert found[0][1:3] == found[1][1:3] == (1, 1)
    assert all(torch.equal(found[0][n], found[1][n]) for n in (0, 3, 4))
    assert [told["because"] for told in agent.told("declined")][-1].endswith("changes Counting.calls")


def test_a_hook_on_all_modules_is_shown_no_chunks() -> None:
    """It would count them as calls: the batch is left as it is."""
    seen: list[int] = []
    hook = nn.modules.module.register_module_forward_hook(lambda _module, args, _out: seen.append(len(args[0])))
    agent, tight = Agent(), Tight(mlp())
    try:
        Split(agent, torch, lambda: False).watch([tight])
        with pytest.raises(torch.cuda.OutOfMemoryError):
            tight(torch.randn(SIZE, 8))
    finally:
        hook.remove()

    assert seen == []
    assert [told["because"] for told in agent.told("declined")] == [
        "a hook on all modules would see each chunk by itself"
    ]
