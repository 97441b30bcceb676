"""A call is acted upon only where that is proven to come to the same: the gradients are right, or it is declined."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.utils.checkpoint import checkpoint  # noqa: E402

from holter.agent.torch.heal.around import Around  # noqa: E402
from holter.agent.torch.heal.split import Split  # noqa: E402
from tests.heal.test_split_batch import Agent, Failing, Listed, Nested, Tight, nested  # noqa: E402

pytestmark = pytest.mark.torch

SIZE = 12


class Net(nn.Module):
    """Two layers; what becomes of them is in `forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def hidden(self, x: Any) -> Any:
        return torch.tanh(self.first(x))

    def forward(self, x: Any) -> Any:
        return self.last(self.hidden(x))


class Gaussian(Net):
    def forward(self, x: Any) -> Any:
        return torch.distributions.Normal(super().forward(x), 1.0)


class Labelled(Net):
    def forward(self, x: Any) -> Any:
        return {"name": "net", "of": torch.distributions.Categorical(logits=super().forward(x))}


class Lazy(Net):
    def forward(self, x: Any) -> Any:
        hidden = self.hidden(x)
        return lambda: self.last(hidden)


class Own(Net):
    class Result:
        def __init__(self, value: Any) -> None:
            self.value = value

    def forward(self, x: Any) -> Any:
        return Own.Result(super().forward(x))


class Auxiliary(Net):
    """Leaves a loss of its own on the module, as mixtures of experts do."""

    def forward(self, x: Any) -> Any:
        hidden = self.hidden(x)
        self.auxiliary = hidden.pow(2).mean()
        return self.last(hidden)


class Registry(Net):
    """Leaves it elsewhere."""

    LOSSES: list[Any] = []  # noqa: RUF012

    def forward(self, x: Any) -> Any:
        hidden = self.hidden(x)
        Registry.LOSSES[:] = [hidden.pow(2).mean()]
        return self.last(hidden)


class Counting(Net):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return super().forward(x)


class Measuring(Net):
    """Keeps what its last batch was, in a new list each time, which often lies where the one before lay."""

    def forward(self, x: Any) -> Any:
        self.sizes = [len(x)]
        return super().forward(x)


class Codebook(Net):
    """Keeps a running mean of its own in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x: Any) -> Any:
        hidden = self.hidden(x)
        self.mean.mul_(0.9).add_(0.1 * hidden.detach().mean(0))
        return self.last(hidden - self.mean)


class Masked(Net):
    """One number for all features, in a buffer whose elements lie at one place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(1).expand(16), persistent=False)

    def forward(self, x: Any) -> Any:
        return self.last(self.hidden(x) * self.mask)


class Instances(Net):
    """Running statistics of each sample by itself: PyTorch writes to them past their version."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm1d(4, track_running_stats=True)

    def forward(self, x: Any) -> Any:
        return self.last(self.norm(self.hidden(x).view(-1, 4, 4)).flatten(1))


class Unmade(Net):
    """A buffer that is made by the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LazyBatchNorm1d()

    def forward(self, x: Any) -> Any:
        return self.last(self.norm(self.hidden(x)))


class Asked(torch.Tensor):
    """A kind of tensor of the script's own, which takes down what it is asked."""

    SEEN: list[str] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Asked.SEEN.append(getattr(func, "__name__", ""))
        return super().__torch_function__(func, types, args, kwargs or {})


class Caching(Net):
    """Computes once what no batch goes into."""

    def __init__(self) -> None:
        super().__init__()
        self.places: Any = None

    def forward(self, x: Any) -> Any:
        if self.places is None:
            self.places = torch.linspace(0, 1, 16)
        return self.last(self.hidden(x) + self.places)


class Borrowing(Net):
    """Reads a weight that is not its own."""

    SCALE = torch.ones(4, requires_grad=True)

    def forward(self, x: Any) -> Any:
        return super().forward(x) * Borrowing.SCALE


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
        self.last.weight = self.first.weight

    def forward(self, x: Any) -> Any:
        return self.last(torch.tanh(self.first(x)))


class Checkpointed(Net):
    def forward(self, x: Any) -> Any:
        return self.last(checkpoint(self.hidden, x, use_reentrant=False))


class Reentrant(Net):
    """Its hidden layer's gradients come from a backward within the backward, and go past whoever asked for it."""

    def forward(self, x: Any) -> Any:
        return self.last(checkpoint(self.hidden, x + 0 * self.last.weight.sum(), use_reentrant=True))


class Cache:
    def __init__(self) -> None:
        self.layers: list[Any] = []


class Remembering(Net):
    """Adds to a cache that it is given, as decoders of text do."""

    def forward(self, x: Any, cache: Any = None) -> Any:
        found = super().forward(x)
        if cache is not None:
            assert not cache.layers
            cache.layers.append(found.detach())
        return found


class Chancy(Net):
    def forward(self, x: Any) -> Any:
        return super().forward(x) * (1.0 if random.random() < 0.5 else 2.0)


class InPlace(Net):
    """Changes what it is given."""

    def forward(self, x: Any) -> Any:
        return super().forward(x.mul_(0.5))


class Writing(Net):
    """Leaves something in what it is given."""

    def forward(self, batch: dict[str, Any]) -> Any:
        batch["mean"] = batch["x"].detach().mean()
        return super().forward(batch["x"])


class Sampling(Net):
    """Draws with the global generator what belongs to the whole batch."""

    def forward(self, x: Any) -> Any:
        return super().forward(x)[torch.randperm(len(x))]


def hooked() -> nn.Module:
    model = Net()
    kept: list[Any] = []
    model.first.register_forward_hook(lambda _module, _args, out: kept.append(out))
    model.kept = kept  # type: ignore[assignment]
    return model


def rows() -> Any:
    return torch.randn(SIZE, 8)


def squares(model: Any, x: Any) -> Any:
    return model(x).pow(2).mean()


def plus_auxiliary(model: Any, x: Any) -> Any:
    loss = squares(model, x)
    return loss + 0.1 * getattr(model, "model", model).auxiliary


def plus_registry(model: Any, x: Any) -> Any:
    return squares(model, x) + 0.1 * Registry.LOSSES[0]


def plus_features(model: Any, x: Any) -> Any:
    loss = squares(model, x)
    return loss + 0.1 * getattr(model, "model", model).kept[-1].pow(2).mean()


def penalised(model: Any, x: Any) -> Any:
    """A gradient penalty: second order."""
    x = x.clone().requires_grad_()
    given = model(x).sum()
    (slope,) = torch.autograd.grad(given, x, create_graph=True)
    return slope.pow(2).mean() + 0.01 * given


def twice(model: Any, x: Any) -> Any:
    """Its own output goes through it again."""
    return model(model(x)).pow(2).mean()


def kept_for_two(model: Any, x: Any) -> Any:
    loss = squares(model, x)
    loss.backward(retain_graph=True)
    return loss * 0.5


def before_it(model: Any, x: Any) -> Any:
    """A call that fits has saved the buffers that one in chunks reads after it."""
    return (model(x[:2]).mean(0) - model(x)).pow(2).mean()


Step = Callable[[Any, Any], Any]
RIGHT: dict[str, tuple[Callable[[], nn.Module], Step]] = {
    "a plain net": (Net, squares),
    "nested containers": (lambda: Nested().eval(), lambda model, x: nested(model, (x,))),
    "tied weights": (Tied, squares),
    "checkpointing": (Checkpointed, squares),
    "a cache": (Caching, squares),
    "its own output": (Tied, twice),
    "a graph kept for a second backward": (Net, kept_for_two),
    "an expanded buffer": (Masked, squares),
    "a graph of the same buffers before it": (Masked, before_it),
}
DECLINED: dict[str, tuple[Callable[[], nn.Module], Step, str]] = {
    "a distribution": (Gaussian, lambda model, x: -model(x).log_prob(x[:, :4]).mean(), "returns a Normal"),
    "a dict that holds one": (Labelled, lambda model, x: model(x)["of"].entropy().mean(), "returns a Categorical"),
    "a function": (Lazy, lambda model, x: model(x)().pow(2).mean(), "returns a function"),
    "an object": (Own, lambda model, x: model(x).value.pow(2).mean(), "returns a Result"),
    "an auxiliary loss on the module": (Auxiliary, plus_auxiliary, "each call changes Auxiliary.auxiliary"),
    "an auxiliary loss elsewhere": (Registry, plus_registry, "more than what it returns hangs on its graph"),
    "features caught by a hook": (hooked, plus_features, "a hook on Linear would see each chunk"),
    "a count of calls": (Counting, squares, "each call changes Counting.calls"),
    "the size of the last batch": (Measuring, squares, "each call changes Measuring.sizes"),
    "a running mean": (Codebook, squares, "each call changes Codebook.mean"),
    "running statistics of samples": (Instances, squares, "each call changes InstanceNorm1d.running_mean"),
    "a reentrant checkpoint": (Reentrant, squares, "a backward within its own gives its weights gradients"),
    "a cache handed on": (Remembering, lambda m, x: m(x, Cache()).pow(2).mean(), "changes the Cache that it is given"),
    "a weight from elsewhere": (Borrowing, squares, "weights that are not found among its own"),
    "weights in a list": (Listed, squares, "weights that are not found among its own"),
    "Python's random numbers": (Chancy, squares, "Python's or NumPy's generators"),
    "inputs changed in place": (InPlace, squares, "each call changes its inputs"),
    "a container that is written into": (
        Writing,
        lambda model, x: squares(model, {"x": x}),
        "writes into the containers",
    ),
    "an order drawn for the batch": (
        Sampling,
        lambda model, x: (model(x) * x[:, :4]).mean(),
        "draws random numbers of its own",
    ),
}
ALL = {**RIGHT, **{name: (make, step) for name, (make, step, _why) in DECLINED.items()}}
CLASSES = (Net, Tied, Nested, Listed, Tight)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Classes are patched for the length of a test."""
    yield
    for cls in (*CLASSES, *Net.__subclasses__(), Breaking, nn.Linear):
        if "__call__" in cls.__dict__:
            del cls.__call__


def near_the_limit(_args: Any, _kwargs: Any) -> bool:
    """In place of what is asked before a call: it may not fit."""
    return False


def gradients(model: nn.Module, step: Step, x: Any) -> list[Any]:
    """Of a seeded step: every weight's, and what the generators would draw next."""
    torch.manual_seed(1)
    random.seed(1)
    model.zero_grad()
    Borrowing.SCALE.grad = None
    step(model, x.clone()).backward()
    found = [*model.parameters(), Borrowing.SCALE]
    state = torch.rand(1), torch.tensor(random.random())
    return [*(None if p.grad is None else p.grad.clone() for p in found), *state]


def same(one: list[Any], other: list[Any], exactly: bool) -> bool:
    pairs = zip(one, other, strict=True)
    return all(
        a is b if a is None or b is None else torch.equal(a, b) if exactly else torch.allclose(a, b, 1e-4, 1e-6)
        for a, b in pairs
    )


@pytest.mark.parametrize("near", [False, True], ids=["calm", "near"])
@pytest.mark.parametrize("kind", ALL)
def test_what_fits_is_the_same_to_the_bit(kind: str, near: bool) -> None:
    """Nothing is touched before an allocation has failed, however near the limit a call comes."""
    make, step = ALL[kind]
    torch.manual_seed(0)
    model, x, agent = make(), rows(), Agent()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    wanted = gradients(model, step, x)
    model.load_state_dict(state)
    split = Split(agent, torch, lambda: False)
    split.watch([model])
    if near:
        split._state(model).is_calm = near_the_limit
    found = gradients(model, step, x)

    assert same(found, wanted, exactly=True)
    assert agent.said == []


@pytest.mark.parametrize("kind", RIGHT)
def test_what_does_not_fit_has_the_gradients_of_the_whole_batch(kind: str) -> None:
    """Weights, and the random numbers of whatever comes after."""
    make, step = RIGHT[kind]
    torch.manual_seed(0)
    model, x, agent = make(), rows(), Agent()
    wanted = gradients(model, step, x)
    tight = Tight(model, fits=5)
    Split(agent, torch, lambda: False).watch([tight])
    found = gradients(tight, step, x)

    assert same(found, wanted, exactly=False)
    assert agent.told("declined") == []
    assert [told["keeps"] for told in agent.told("intervention")][:1] == ["exact"]


@pytest.mark.parametrize("kind", DECLINED)
def test_what_can_not_be_proven_is_declined_with_the_reason_and_left_as_it_was(kind: str) -> None:
    """The error is the user's own; weights, buffers, attributes and generators are as before the call."""
    make, step, why = DECLINED[kind]
    torch.manual_seed(0)
    model, x, agent = make(), rows(), Agent()
    tight = Tight(model, fits=5)
    Split(agent, torch, lambda: False).watch([tight])
    state = {name: value.clone() for name, value in model.state_dict().items()}
    held = {(part, name): value for part in model.modules() for name, value in part.__dict__.items()}
    generators = torch.get_rng_state(), random.getstate()
    with pytest.raises(torch.cuda.OutOfMemoryError, match="Tried to allocate"):
        step(tight, x.clone())

    (told,) = agent.told("declined")
    assert why in told["because"]
    assert agent.told("intervention") == []
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(held.get((part, name)) is value for part in model.modules() for name, value in part.__dict__.items())
    assert torch.equal(torch.get_rng_state(), generators[0])
    assert random.getstate() == generators[1]


class Breaking(nn.Module):
    """Runs out of memory in its backward, with more than a few samples."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Any) -> Any:
        return self.model(Failing.apply(x + 0 * next(self.model.parameters()).sum()))


@pytest.mark.parametrize("kind", ["a plain net", "tied weights", "a cache", "a count of calls"])
def test_a_backward_that_failed_is_run_in_chunks_by_the_next_attempt_or_declined(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It is proven on the first step, and chunks whose backward fails as well are halved."""
    make, step = ALL[kind]
    torch.manual_seed(0)
    model, x, agent = make(), rows(), Agent()
    wanted = gradients(model, step, x)
    breaking = Breaking(model)
    with pytest.raises(torch.cuda.OutOfMemoryError, match="Tried to allocate"):
        gradients(breaking, step, x)
    monkeypatch.setenv("HOLTER_SPLIT", "2")
    Split(agent, torch, lambda: False).watch([breaking])
    if kind in DECLINED:
        with pytest.raises(torch.cuda.OutOfMemoryError, match="Tried to allocate"):
            gradients(breaking, step, x)
        assert [told["because"] for told in agent.told("declined")] == [DECLINED[kind][2]]
    else:
        assert same(gradients(breaking, step, x), wanted, exactly=False)
        assert agent.told("intervention")[-1]["rows"] <= 6


def traced(model: Any, x: Any) -> Any:
    return torch.jit.trace(model, x)(x)


def symbolic(model: Any, x: Any) -> Any:
    return torch.fx.symbolic_trace(model)(x)


def functional(model: Any, x: Any) -> Any:
    weights = dict(model.named_parameters())
    return torch.func.grad(lambda given: torch.func.functional_call(model, given, (x,)).pow(2).mean())(weights)


def per_sample(model: Any, x: Any) -> Any:
    weights = dict(model.named_parameters())

    def loss(given: Any, one: Any) -> Any:
        return torch.func.functional_call(model, given, (one[None],)).pow(2).mean()

    return torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, x)


def tangent(model: Any, x: Any) -> Any:
    with torch.autograd.forward_ad.dual_level():
        return torch.autograd.forward_ad.unpack_dual(
            model(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
        ).tangent


def operations(model: Any, x: Any) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Log():
        model(x).sum().backward()
    return seen


def functions(model: Any, x: Any) -> Any:
    from torch.overrides import TorchFunctionMode

    seen: list[str] = []

    class Log(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    with Log():
        model(x)
    return seen


LOOKS = [traced, symbolic, functional, per_sample, tangent, operations, functions]


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.__name__)
def test_whoever_looks_at_a_call_sees_nothing_of_ours(look: Callable[[Any, Any], Any]) -> None:
    """Tracers, transforms and modes, near the limit too: such a call is left alone."""
    torch.manual_seed(0)
    model, x, agent = Net(), rows(), Agent()
    wanted = look(model, x)
    split = Split(agent, torch, lambda: False)
    split.watch([model])
    split._state(model).is_calm = near_the_limit

    model.zero_grad()
    found = look(model, x)
    if isinstance(wanted, list):
        assert found == wanted
    else:
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert agent.said == []


def test_weights_that_are_not_there_are_left_alone() -> None:
    """Models on the meta device, and such as are loaded piece by piece."""
    agent = Agent()
    with torch.device("meta"):
        model = Net()
    Split(agent, torch, lambda: False).watch([model])

    assert model(torch.empty(SIZE, 8, device="meta")).shape == (SIZE, 4)
    assert F.linear(torch.ones(1, 8), torch.ones(2, 8)).shape == (1, 2)
    assert agent.said == []


@pytest.mark.parametrize("near", [False, True], ids=["calm", "near"])
def test_a_model_is_handed_the_very_containers_that_it_was_called_with(near: bool) -> None:
    """It may write into them: what it leaves there is there after the call."""
    model, batch = Writing(), {"x": rows()}
    split = Split(Agent(), torch, lambda: False)
    split.watch([model])
    if near:
        split._state(model).is_calm = near_the_limit
    model(batch)

    assert "mean" in batch


def test_arguments_that_hold_themselves_are_no_trouble_of_the_users() -> None:
    """They are taken apart so far and no further: no error of ours is counted, and the call is made."""

    class Taking(Net):
        def forward(self, x: Any, _seen: Any) -> Any:
            return super().forward(x)

    agent, endless = Agent(), []
    endless.append(endless)
    model = Taking()
    Split(agent, torch, lambda: False).watch([model])

    assert model(rows(), endless).shape == (SIZE, 4)
    assert agent.said == []


def test_a_model_that_only_evaluates_is_copied_from_once() -> None:
    """A teacher, a target network: while its calls fit with memory to spare they are calm like those that train."""
    model, agent = Net(), Agent()
    model.register_buffer("bank", torch.zeros(5_000_000))
    split = Split(agent, torch, lambda: False)
    split.watch([model])
    state = split._state(model)
    with torch.no_grad():
        model(rows())

    assert state.is_calm_evaluation((rows(),), {})
    assert not state.is_calm((rows(),), {})
    assert not state.is_calm_evaluation((torch.zeros(10 * SIZE, 8),), {})


def test_before_a_call_fails_only_small_buffers_are_copied() -> None:
    """Of a large one it is enough to know whether a call has written to it."""
    model = Net()
    model.register_buffer("bank", torch.zeros(5_000_000))
    model.register_buffer("mean", torch.zeros(16))
    state = Split(Agent(), torch, lambda: False)._state(model)
    around = Around(state, model.modules(), 16 << 20)
    model.mean += 1
    undone = around.undo()
    model.bank += 1

    assert [copy.numel() for _, copy, _ in around.copies] == [16]
    assert undone
    assert model.mean.sum() == 0
    assert not around.undo()


def test_a_buffer_of_the_scripts_own_kind_is_asked_nothing() -> None:
    """Neither in calm nor near the limit; and such a model is never run in chunks."""
    model, agent = Net(), Agent()
    model.register_buffer("scale", torch.ones(4).as_subclass(Asked))
    tight = Tight(model, fits=SIZE)
    split = Split(agent, torch, lambda: False)
    split.watch([tight])
    Asked.SEEN.clear()
    tight(rows()).sum().backward()
    split._state(tight).is_calm = near_the_limit
    tight(rows()).sum().backward()
    tight.fits = 5
    with pytest.raises(torch.cuda.OutOfMemoryError, match="Tried to allocate"):
        tight(rows())

    assert Asked.SEEN == []
    assert "its buffers are of a kind of their own, Asked" in agent.told("declined")[0]["because"]


def test_a_first_call_in_chunks_of_a_layer_that_is_not_made_yet_is_the_scripts_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a restart asks for it: declined with the reason, and no error of ours ends the run."""
    monkeypatch.setenv("HOLTER_SPLIT", "2")
    model, agent = Unmade(), Agent()
    Split(agent, torch, lambda: False).watch([model])

    assert model(rows()).shape == (SIZE, 4)
    assert "a hook on LazyBatchNorm1d" in agent.told("declined")[0]["because"]
    assert agent.told("guest-error") == []
