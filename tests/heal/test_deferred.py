"""A loss on the outputs of a model that has to be run in chunks is made chunk by chunk, with nothing computed twice."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from holter.agent.torch.heal.split import Split  # noqa: E402
from tests.heal.test_split_batch import FITS, Agent, Tight  # noqa: E402

pytestmark = pytest.mark.torch

SIZE, LONG, WORDS = 24, 5, 7
Step = Callable[[Any, dict[str, Any]], Any]


def data() -> dict[str, Any]:
    torch.manual_seed(3)
    padded = torch.randint(1, WORDS, (SIZE, LONG))
    for n in range(SIZE):
        padded[n, LONG - n % 4 :] = 0
    return {
        "x": torch.randn(SIZE, 8), "y": torch.randint(0, 3, (SIZE,)), "target": torch.randn(SIZE, 3),
        "words": torch.randint(1, WORDS, (SIZE, LONG)), "padded": padded, "marks": (padded != 0).float(),
        "weights": torch.rand(3) + 0.5, "scale": torch.tensor(1.5, requires_grad=True),
    }  # fmt: skip


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))


def words() -> nn.Module:
    return nn.Sequential(nn.Embedding(WORDS, 8), nn.Tanh(), nn.Linear(8, WORDS))


class OwnLoss(nn.Module):
    """Gives its logits and the mean loss of the labels that are not left out."""

    def __init__(self, ignored: int = -1) -> None:
        super().__init__()
        self.net, self.ignored = words(), ignored

    def forward(self, x: Any, y: Any) -> Any:
        logits = self.net(x)
        return logits, F.cross_entropy(logits.view(-1, WORDS), y.view(-1), ignore_index=self.ignored)


class Two(nn.Module):
    """Gives a reconstruction, a mean and a spread."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(8, 8), nn.Linear(4, 8)

    def forward(self, x: Any) -> Any:
        mean, spread = self.down(x).chunk(2, 1)
        return self.up(mean), mean, spread


def accumulate(model: Any, d: dict[str, Any]) -> Any:
    loss = F.cross_entropy(model(d["x"]), d["y"])
    loss += 0.1 * d["scale"]
    loss /= 2
    return loss


def variational(model: Any, d: dict[str, Any]) -> Any:
    made, mean, spread = model(d["x"])
    likeness = F.mse_loss(made, d["x"], reduction="sum")
    divergence = -0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())
    return (likeness + 0.3 * divergence) / SIZE


def read_before(model: Any, d: dict[str, Any]) -> Any:
    loss = F.cross_entropy(model(d["x"]), d["y"])
    assert loss.item() > 0
    return loss * 3


def with_sizes(model: Any, d: dict[str, Any]) -> Any:
    logits = model(d["words"])
    batch, length, wide = logits.shape
    return F.cross_entropy(logits.view(batch * length, wide), d["words"].roll(-1, 1).view(batch * length))


def masked(model: Any, d: dict[str, Any]) -> Any:
    each = F.cross_entropy(model(d["words"]).transpose(1, 2), d["padded"], reduction="none")
    return (each * d["marks"]).sum() / d["marks"].sum()


def gathered(model: Any, d: dict[str, Any]) -> Any:
    return -F.log_softmax(model(d["words"]), -1).gather(2, d["words"].unsqueeze(-1)).squeeze(-1).mean()


def divergence(model: Any, d: dict[str, Any]) -> Any:
    return F.kl_div(F.log_softmax(model(d["x"]), 1), d["target"].softmax(1), reduction="batchmean")


def left_out(model: Any, d: dict[str, Any]) -> Any:
    return F.cross_entropy(model(d["words"]).flatten(0, 1), d["padded"].flatten(), ignore_index=0)


def in_bfloat(model: Any, d: dict[str, Any]) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(d["x"])
    return F.cross_entropy(out.float(), d["y"])


# What is made chunk by chunk, each sample going through the model once.
ONCE: dict[str, tuple[Callable[[], nn.Module], Step]] = {
    "cross entropy": (net, lambda m, d: F.cross_entropy(m(d["x"]), d["y"])),
    "smoothed labels": (net, lambda m, d: nn.CrossEntropyLoss(label_smoothing=0.1)(m(d["x"]), d["y"])),
    "a sum": (net, lambda m, d: F.mse_loss(m(d["x"]), d["target"], reduction="sum")),
    "a part of the loss": (net, lambda m, d: F.cross_entropy(m(d["x"]), d["y"]) / 4),
    "a root": (net, lambda m, d: F.mse_loss(m(d["x"]), d["target"]).sqrt()),
    "a divergence": (net, divergence),
    "two terms": (net, lambda m, d: (o := m(d["x"])).pow(2).mean() + F.cross_entropy(o, d["y"])),
    "a variational loss": (Two, variational),
    "a term of the script's own": (net, lambda m, d: F.cross_entropy(m(d["x"]), d["y"]) + 0.1 * d["scale"].square()),
    "one that learns beside it": (net, lambda m, d: F.cross_entropy(m(d["x"]) * d["scale"], d["y"])),
    "added in place": (net, accumulate),
    "read before its backward": (net, read_before),
    "words": (words, lambda m, d: F.cross_entropy(m(d["words"]).flatten(0, 1), d["words"].flatten())),
    "words, with numbers for their shape": (words, with_sizes),
    "words that are left out": (words, left_out),
    "words with a mask": (words, masked),
    "words picked out": (words, gathered),
    "the model's own loss": (OwnLoss, lambda m, d: m(d["words"], d["words"])[1] / 2),
    "the model's own loss, words left out": (lambda: OwnLoss(0), lambda m, d: m(d["words"], d["padded"])[1]),
    "the last of each": (words, lambda m, d: F.cross_entropy(m(d["words"])[:, -1], d["words"][:, 0])),
    "mixed precision": (net, in_bfloat),
}  # fmt: skip


def hardest(model: Any, d: dict[str, Any]) -> Any:
    return F.cross_entropy(model(d["x"]), d["y"], reduction="none").topk(5).values.mean()


def centred(model: Any, d: dict[str, Any]) -> Any:
    out = model(d["x"])
    return F.cross_entropy(out, d["y"]) + out.mean(0).pow(2).sum()


def in_a_batch_softmax(model: Any, d: dict[str, Any]) -> Any:
    return -(F.log_softmax(model(d["x"]), 0) * d["target"].softmax(0)).sum()


def hooked(model: Any, d: dict[str, Any]) -> Any:
    out = model(d["x"])
    out.register_hook(lambda gradient: gradient * 2)
    return F.cross_entropy(out, d["y"])


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(_ctx: Any, gradient: Any) -> Any:
        return gradient * 2


def triplet(model: Any, d: dict[str, Any]) -> Any:
    return F.triplet_margin_loss(model(d["x"]), model(d["x"] + 0.1), model(d["x"].flip(0)))


def pieces(model: Any, d: dict[str, Any]) -> Any:
    out = model(d["x"])
    return sum(F.cross_entropy(out[n : n + 8], d["y"][n : n + 8]) * (n + 1) for n in range(0, SIZE, 8))


def summed_beside(model: Any, d: dict[str, Any]) -> Any:
    return F.mse_loss(model(d["x"]), d["target"], reduction="sum") + d["scale"]


def by_numpy(model: Any, d: dict[str, Any]) -> Any:
    out = model(d["x"])
    return F.cross_entropy(out, torch.from_numpy(out.detach().numpy().argmax(1)))


def stacked(model: Any, d: dict[str, Any]) -> Any:
    out = model(d["x"])
    return torch.stack([F.cross_entropy(out, d["y"]), out.pow(2).mean()]).sum()


# What compares samples, or is of a kind that is not taken down: it meets the outputs of the full batch.
WHOLE: dict[str, tuple[Callable[[], nn.Module], Step]] = {
    "the hardest samples": (net, hardest),
    "classes with weights": (net, lambda m, d: F.cross_entropy(m(d["x"]), d["y"], weight=d["weights"])),
    "a mean over the batch in between": (net, centred),
    "a softmax over the batch": (net, in_a_batch_softmax),
    "a slice of the batch": (net, lambda m, d: F.cross_entropy(m(d["x"])[:20], d["y"][:20])),
    "slices of the batch": (net, pieces),
    "one sample": (net, lambda m, d: m(d["x"])[3].pow(2).sum()),
    "the largest": (net, lambda m, d: m(d["x"]).max()),
    "a sum with a term of the script's own": (net, summed_beside),
    "a hook on the outputs": (net, hooked),
    "a function of the script's own": (net, lambda m, d: F.cross_entropy(Doubled.apply(m(d["x"])), d["y"])),
    "three calls": (net, triplet),
    "an addition in place": (net, lambda m, d: F.cross_entropy(m(d["x"]).add_(1.0).mul_(d["target"]), d["y"])),
    "samples in another order": (net, lambda m, d: F.cross_entropy(m(d["x"])[torch.arange(SIZE).flip(0)], d["y"])),
    "a numpy of it": (net, by_numpy),
    "two losses stacked": (net, stacked),
}  # fmt: skip


@pytest.fixture(autouse=True)
def as_before() -> Any:
    """Classes are patched for the length of a test."""
    classes = (Tight, nn.Sequential, OwnLoss, Two)
    before = {cls: cls.__dict__.get("__call__") for cls in classes}
    yield
    for cls, call in before.items():
        if call is not None:
            cls.__call__ = call
        elif "__call__" in cls.__dict__:
            del cls.__call__


def tight(make: Callable[[], nn.Module], optimizer: bool = True) -> tuple[Agent, Tight, Any]:
    torch.manual_seed(0)
    agent, model = Agent(), Tight(make())
    trained = torch.optim.SGD(model.parameters(), lr=0.1)
    Split(agent, torch, lambda: False).watch([model], trained if optimizer else None)
    return agent, model, trained


def gradients(model: nn.Module, d: dict[str, Any]) -> list[Any]:
    """Of the model's weights and of what the script's own loss learns."""
    return [p.grad for p in (*model.parameters(), d["scale"])]


def assert_as_plain(make: Callable[[], nn.Module], step: Step, rough: bool = False, steps: int = 3) -> Tight:
    """A few steps with room for a few samples beside as many with room for all."""
    torch.manual_seed(0)
    plain, d = make(), data()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    agent, model, other = tight(make)
    e = data()
    for _ in range(steps):
        optimizer.zero_grad(), other.zero_grad()
        d["scale"].grad = e["scale"].grad = None
        wanted, found = step(plain, d), step(model, e)
        model.seen.sizes.clear()
        wanted.backward(), found.backward()
        assert found.item() == pytest.approx(wanted.item(), rel=2e-2 if rough else 1e-4)
        for want, have in zip(gradients(plain, d), gradients(model, e), strict=True):
            assert (want is None) == (have is None)
            if want is not None:
                torch.testing.assert_close(have, want, rtol=0.05 if rough else 1e-3, atol=1e-2 if rough else 1e-6)
        optimizer.step(), other.step()
    assert [told["keeps"] for told in agent.told("intervention")[:1]] == ["exact"]
    assert agent.told("declined") == []
    assert agent.told("internal-error") == []
    return model


@pytest.mark.parametrize("kind", ONCE)
def test_a_loss_is_made_chunk_by_chunk_and_nothing_is_computed_twice(kind: str) -> None:
    make, step = ONCE[kind]
    model = assert_as_plain(make, step, rough=kind == "mixed precision")

    assert max(model.seen.sizes, default=0) <= FITS
    if kind != "read before its backward":
        assert sum(model.seen.sizes) == SIZE


@pytest.mark.parametrize("kind", WHOLE)
def test_what_compares_samples_meets_the_outputs_of_the_full_batch(kind: str) -> None:
    assert_as_plain(*WHOLE[kind])


class Named(dict[str, Any]):
    """As libraries give their outputs: entries that are attributes, too."""

    def __init__(self, **names: Any) -> None:
        super().__init__(**names)
        self.__dict__.update(names)


class NamedLoss(OwnLoss):
    def forward(self, x: Any, y: Any) -> Any:
        logits, loss = super().forward(x, y)
        return Named(loss=loss, logits=logits)


def forgets_logits(model: Any, optimizer: Any, d: dict[str, Any]) -> None:
    for _ in range(3):
        logits, loss = model(d["words"], d["words"])  # noqa: RUF059
        loss.backward()
        optimizer.step()


def reads_before_the_update(model: Any, optimizer: Any, d: dict[str, Any]) -> None:
    for _ in range(3):
        logits, loss = model(d["words"], d["words"])
        loss.backward()
        right = (logits.argmax(-1) == d["words"]).sum()
        optimizer.step()
        assert right >= 0


def takes_the_loss_alone(model: Any, optimizer: Any, d: dict[str, Any]) -> None:
    for _ in range(3):
        outputs = model(d["words"], d["words"])
        outputs.loss.backward()
        optimizer.step()
        assert outputs["loss"].item() > 0


def reads_logits(model: Any, optimizer: Any, d: dict[str, Any]) -> list[Any]:
    found = []
    for _ in range(3):
        logits, loss = model(d["words"], d["words"])
        loss.backward()
        optimizer.step()
        found.append(logits.detach().clone())
    return found


def reads_outputs(model: Any, optimizer: Any, d: dict[str, Any]) -> list[Any]:
    found = []
    for _ in range(3):
        outputs = model(d["words"], d["words"])
        outputs.loss.backward()
        optimizer.step()
        found.append(outputs.logits.detach().clone())
    return found


def keeps_them(model: Any, optimizer: Any, d: dict[str, Any]) -> list[Any]:
    found = []
    for _ in range(3):
        logits, loss = model(d["words"], d["words"])
        loss.backward()
        found.append(logits)
        optimizer.step()
    return [one.detach() for one in found]


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As logits of gigabytes."""
    monkeypatch.setattr("holter.agent.torch.heal.deferred._SMALL_SHARE", 0.0)


@pytest.mark.usefixtures("nothing_is_small")
@pytest.mark.parametrize(
    ("make", "loop"), [(OwnLoss, forgets_logits), (NamedLoss, takes_the_loss_alone)], ids=["a name", "an entry"]
)
def test_outputs_that_nobody_reads_are_never_made(make: Callable[[], nn.Module], loop: Callable[..., Any]) -> None:
    """Though the loop still holds them when the weights change."""
    _agent, model, optimizer = tight(make)
    loop(model, optimizer, data())
    model.seen.sizes.clear()
    loop(model, optimizer, data())

    assert sum(model.seen.sizes) == 3 * SIZE


@pytest.mark.usefixtures("nothing_is_small")
@pytest.mark.parametrize(
    ("make", "loop"),
    [(OwnLoss, reads_logits), (NamedLoss, reads_outputs), (OwnLoss, keeps_them)],
    ids=["a name", "an entry", "a list"],
)
def test_outputs_that_are_read_after_the_update_are_those_of_before_it(
    make: Callable[[], nn.Module], loop: Callable[..., Any]
) -> None:
    _agent, model, optimizer = tight(make)
    found = loop(model, optimizer, data())
    torch.manual_seed(0)
    plain = make()
    wanted = loop(plain, torch.optim.SGD(plain.parameters(), lr=0.1), data())

    for have, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("nothing_is_small")
def test_figures_of_outputs_are_computed_without_them() -> None:
    _agent, model, optimizer = tight(OwnLoss)
    reads_before_the_update(model, optimizer, data())

    assert SIZE not in model.seen.sizes[1:]


@pytest.mark.usefixtures("nothing_is_small")
def test_a_loss_of_an_evaluation_is_made_without_its_outputs() -> None:
    _agent, model, _ = tight(OwnLoss)
    d = data()
    with torch.no_grad():
        for _ in range(2):
            model.seen.sizes.clear()
            logits, loss = model.eval()(d["words"], d["words"])
            found, right = loss.item(), (logits.argmax(-1) == d["words"]).sum().item()

    assert SIZE not in model.seen.sizes
    with torch.no_grad():
        logits, loss = model.model.eval()(d["words"], d["words"])
    assert (found, right) == (pytest.approx(loss.item()), (logits.argmax(-1) == d["words"]).sum().item())


def test_a_loss_that_is_kept_does_not_keep_its_batch() -> None:
    """`history.append(loss.detach())` is a number for each step."""
    _agent, model, optimizer = tight(net)
    history, batches = [], []
    gc.disable()
    try:
        for _ in range(3):
            d = data()
            batches.append(weakref.ref(d["x"]))
            out = model(d["x"])
            loss = F.cross_entropy(out, d["y"])
            loss.backward()
            optimizer.step()
            history.append(loss.detach())
            del d, out, loss
        left = [ref() is not None for ref in batches]
    finally:
        gc.enable()

    assert left == [False] * 3
    assert all(type(one) is torch.Tensor for one in history)


class Deep(nn.Module):
    """Runs out of memory in a layer of a layer, and knows which outputs of others are still there."""

    class Layer(nn.Module):
        def __init__(self, last: bool) -> None:
            super().__init__()
            self.inner, self.last, self.refs = nn.Linear(8, 8), last, Outputs()

        def forward(self, x: Any) -> Any:
            found = self.inner(x).tanh()
            if len(x) > FITS:
                self.refs.seen.append(weakref.ref(found))
            if self.last and len(x) > FITS:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return found

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Deep.Layer(n == 2) for n in range(3))
        self.alive = Outputs()

    def forward(self, x: Any) -> Any:
        self.alive.seen.append(sum(ref() is not None for layer in self.layers for ref in layer.refs.seen))
        for layer in self.layers:
            x = layer(x)
        return x


class Outputs:
    """Kept apart from the model: one that changes itself is not split."""

    def __init__(self) -> None:
        self.seen: list[Any] = []


def test_of_an_attempt_that_failed_nothing_is_left() -> None:
    """A layer within the model that is stood around itself holds its input, and so the graph before it."""
    torch.manual_seed(0)
    agent, model = Agent(), Deep()
    Split(agent, torch, lambda: False).watch([model])
    d, before = data(), {cls: cls.__dict__.get("__call__") for cls in (Deep, Deep.Layer)}
    gc.disable()
    try:
        model(d["x"]).pow(2).mean().backward()
    finally:
        gc.enable()
        for cls in before:
            del cls.__call__

    assert set(model.alive.seen) == {0}


def test_labels_that_are_first_left_out_in_a_later_batch_are_found() -> None:
    """In the first batch all samples have as many: it does not show what the mean goes by."""
    d = data()
    batches = [d["words"], d["padded"]]
    torch.manual_seed(0)
    plain = OwnLoss(0)
    agent, model, _ = tight(lambda: OwnLoss(0))
    for labels in batches:
        plain.zero_grad(), model.zero_grad()
        wanted, found = plain(d["words"], labels)[1], model(d["words"], labels)[1]
        wanted.backward(), found.backward()

        assert found.item() == pytest.approx(wanted.item(), rel=1e-4)
        for want, have in zip(plain.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(have.grad, want.grad, rtol=1e-3, atol=1e-6)
    assert agent.told("declined") == []


def test_a_loss_that_is_copied_before_its_backward_costs_nothing() -> None:
    """Lightning keeps a copy for its reports."""
    _agent, model, optimizer = tight(net)
    d = data()
    for _ in range(2):
        model.seen.sizes.clear()
        loss = F.cross_entropy(model(d["x"]), d["y"])
        kept = loss.detach().clone()
        loss.backward()
        optimizer.step()

    assert sum(model.seen.sizes) == SIZE
    assert kept.item() == loss.item()


def test_running_statistics_move_though_nobody_reads_the_outputs() -> None:
    """As where a model is called in training mode for them alone."""

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))

    _agent, model, optimizer = tight(make)
    model(data()["x"])
    optimizer.step()

    assert model.model[1].running_mean.abs().sum() > 0


def test_two_optimizers_each_change_their_own_model() -> None:
    """The generator's output goes on to a second loss after the discriminator's update."""

    def play(maker: Any, judge: Any) -> list[Any]:
        first, second = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (maker, judge))
        d = data()
        for _ in range(2):
            made = maker(d["x"])
            second.zero_grad()
            (judge(d["target"]).mean() - judge(made.detach()).mean()).backward()
            second.step()
            first.zero_grad()
            judge(made).pow(2).mean().backward()
            first.step()
        return [p.grad for one in (maker, judge) for p in one.parameters()]

    torch.manual_seed(0)
    found = []
    for agent in (None, Agent()):
        torch.manual_seed(0)
        pair: list[nn.Module] = [net(), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))]
        if agent is not None:
            pair = [Tight(one) for one in pair]
            Split(agent, torch, lambda: False).watch(pair)
        found.append(play(*pair))

    for want, have in zip(*found, strict=True):
        torch.testing.assert_close(have, want, rtol=1e-3, atol=1e-6)


def test_an_optimizer_that_calls_the_loss_itself_is_served() -> None:
    """L-BFGS calls it several times within one update."""
    found = []
    for make in (net, lambda: tight(net)[1]):
        torch.manual_seed(0)
        model = make()
        torch.manual_seed(0)
        optimizer, d = torch.optim.LBFGS(model.parameters(), max_iter=4), data()

        def closure(model: Any = model, optimizer: Any = optimizer, d: Any = d) -> Any:
            optimizer.zero_grad()
            loss = F.mse_loss(model(d["x"]), d["target"])
            loss.backward()
            return loss

        optimizer.step(closure)
        found.append([p.detach().clone() for p in model.parameters()])

    for want, have in zip(*found, strict=True):
        torch.testing.assert_close(have, want, rtol=1e-3, atol=1e-5)


def test_gradients_that_are_asked_for_by_name_are_given() -> None:
    """`torch.autograd.grad`, and a backward of several losses."""
    d = data()
    torch.manual_seed(0)
    plain = net()
    _agent, model, _ = tight(net)
    wanted = torch.autograd.grad(F.cross_entropy(plain(d["x"]), d["y"]), list(plain.parameters()))
    found = torch.autograd.grad(F.cross_entropy(model(d["x"]), d["y"]), list(model.parameters()))
    for one in (plain, model):
        torch.autograd.backward([F.cross_entropy(one(d["x"]), d["y"]), one(d["x"]).pow(2).mean()])

    for want, have in zip(wanted, found, strict=True):
        torch.testing.assert_close(have, want, rtol=1e-3, atol=1e-6)
    for p, q in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-3, atol=1e-6)


def test_a_number_that_differs_with_the_batch_is_declined_where_it_is_no_tensor() -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: Any) -> Any:
            return self.net(x), len(x)

    agent, model, _ = tight(Counted)
    with pytest.raises(torch.cuda.OutOfMemoryError, match="Tried to allocate"):
        model(data()["x"])

    assert "a number that is no tensor" in agent.told("declined")[0]["because"]
