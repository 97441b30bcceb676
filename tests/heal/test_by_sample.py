"""A loss or figure that adds up over the first samples by chance is that of the full batch in every later step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from holter.agent.torch.heal import proof  # noqa: E402
from holter.agent.torch.heal.split import Split  # noqa: E402
from tests.heal.test_split_batch import FITS, Agent, Tight  # noqa: E402

pytestmark = pytest.mark.torch

SIZE, STEPS = 24, 4
Loop = Callable[[nn.Module], list[float]]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Classes are patched for the length of a test, in which numbers have eight bytes."""
    before = {cls: cls.__dict__.get("__call__") for cls in (Tight, nn.Sequential, Counting, Own)}
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
    for cls, call in before.items():
        if call is not None:
            cls.__call__ = call
        elif "__call__" in cls.__dict__:
            del cls.__call__


def net(last: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, last))


def pixels() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 1), nn.Tanh(), nn.Conv2d(4, 4, 1))


def steps(model: nn.Module, loss_of: Callable[[Any, int], Any]) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    told = []
    for n in range(STEPS):
        loss = loss_of(model, n)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        told.append(loss.item())
    return told


def weighed_classes(model: nn.Module, _n: int) -> Any:
    """The first two samples are of one class."""
    x, y = torch.randn(SIZE, 8), torch.randint(0, 3, (SIZE,))
    y[:2] = 0
    return F.cross_entropy(model(x), y, weight=torch.tensor([1.0, 2.0, 5.0]))


def sure_samples(model: nn.Module, n: int) -> Any:
    """At first all of them count, then those whose output is sure."""
    out, y = model(torch.randn(SIZE, 8)), torch.randint(0, 3, (SIZE,))
    mask = (out.detach().max(1).values > (-10.0 if n == 0 else 0.2)).double()
    return (F.cross_entropy(out, y, reduction="none") * mask).sum() / mask.sum()


def labels_of_its_own(model: nn.Module, n: int) -> Any:
    """Labels made of the outputs, of which later on some are left out."""
    out = model(torch.randn(SIZE, 8))
    sure = out.detach().max(1).values > (-10.0 if n == 0 else 0.2)
    return F.cross_entropy(out, torch.where(sure, out.detach().argmax(1), -100))


def void_pixels(model: nn.Module, n: int) -> Any:
    """Later on the pictures have pixels without a class, each as many as its number."""
    x, y = torch.randn(SIZE, 2, 4, 4), torch.randint(0, 4, (SIZE, 4, 4))
    for i in range(SIZE if n else 0):
        y[i].view(-1)[: i % 14] = 255
    return F.cross_entropy(model(x), y, ignore_index=255)


def each_with_all(model: nn.Module, _n: int) -> Any:
    """Outputs of two axes and targets of one: a well-known mistake, in which each sample meets all others."""
    x, y = torch.randn(SIZE, 8), (torch.randn(SIZE) > 0).double()
    y[:2] = 0
    return F.mse_loss(model(x), y)


def each_with_all_by_hand(model: nn.Module, _n: int) -> Any:
    x, y = torch.randn(SIZE, 8), (torch.randn(SIZE) > 0).double()
    y[:2] = 0
    return (model(x) - y).pow(2).mean()


def largest(model: nn.Module, n: int) -> Any:
    """At first all samples but one give nothing."""
    mask = torch.ones(SIZE, 1)
    mask[1:] = min(n, 1)
    return (model(torch.randn(SIZE, 8)).exp() * mask).max()


def below_a_threshold(model: nn.Module, n: int) -> Any:
    """Samples of very unlike sizes, at first all above the threshold: "flooding" turns the mean around, not them."""
    sizes = torch.linspace(0.0, 1.0, SIZE)[:, None] + (5.0 if n == 0 else 0.0)
    loss = (model(torch.randn(SIZE, 8)) - sizes).abs().mul(sizes).mean()
    return (loss - 0.4).abs() + 0.4


def doubled_where_large(model: nn.Module, n: int) -> Any:
    """What the loop does hangs on the number of the full batch."""
    sizes = torch.linspace(0.0, 1.0, SIZE)[:, None] + (5.0 if n == 0 else 0.0)
    loss = (model(torch.randn(SIZE, 8)) - sizes).abs().mul(sizes).mean()
    return loss * 2 if loss > 0.6 else loss


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module, int], Any]]] = {
    "classes with weights": (net, weighed_classes),
    "a mask made of the outputs": (net, sure_samples),
    "labels made of the outputs": (net, labels_of_its_own),
    "pixels that are left out": (pixels, void_pixels),
    "targets with an axis less": (lambda: net(1), each_with_all),
    "the same by hand": (lambda: net(1), each_with_all_by_hand),
    "the largest of all": (net, largest),
    "a threshold for the mean": (net, below_a_threshold),
    "a branch on the loss": (net, doubled_where_large),
}


def both(make: Callable[[], nn.Module], loop: Loop) -> None:
    """Asserts that weights and what the loop tells are those of a run with room for all."""
    ends = []
    for fits in (SIZE, FITS):
        torch.manual_seed(0)
        agent, model = Agent(), Tight(make(), fits=fits)
        if fits < SIZE:
            Split(agent, torch, lambda: False).watch([model], torch.optim.SGD(model.parameters(), lr=0.1))
        told = loop(model)
        assert agent.told("internal-error") == agent.told("declined") == []
        assert bool(agent.told("intervention")) == (fits == FITS)
        ends.append((told, [value for p in model.parameters() for value in p.detach().flatten().tolist()]))
    assert ends[1][0] == pytest.approx(ends[0][0], rel=1e-9)
    assert ends[1][1] == pytest.approx(ends[0][1], rel=1e-9, abs=1e-12)


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("kind", CASES)
def test_a_loss_that_adds_up_by_chance_is_that_of_the_full_batch(kind: str) -> None:
    make, loss_of = CASES[kind]
    both(make, lambda model: steps(model, loss_of))


@pytest.mark.parametrize("first", [True, False], ids=["before the update", "after it"])
def test_a_count_that_is_zero_for_the_first_samples_is_that_of_the_full_batch(first: bool) -> None:
    """Of many classes an untrained model knows none."""

    def loop(model: nn.Module) -> list[float]:
        optimizer, told = torch.optim.SGD(model.parameters(), lr=1.0), []
        x, y = torch.randn(SIZE, 8), torch.randint(0, 50, (SIZE,))
        with torch.no_grad():
            y[:2] = (model(x[:2]).argmax(1) + 1) % 50
        for _ in range(40):
            out = model(x)
            loss = F.cross_entropy(out, y)
            right, share = (out.argmax(1) == y).sum(), (out.argmax(1) == y).double().sum() / SIZE
            told += [right.item(), share.item()] if first else []
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            told += [] if first else [right.item(), share.item()]
        assert told[-2] > SIZE / 4
        return told

    both(lambda: net(50), loop)


class Counting(nn.Module):
    """Tells with its loss how many samples it gets right, as many libraries' heads do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net(50)

    def forward(self, x: Any, y: Any) -> Any:
        out = self.net(x)
        return F.cross_entropy(out, y), (out.argmax(1) == y).sum()


def test_a_models_own_count_that_can_not_be_shown_is_never_another() -> None:
    """Zero for both samples: whether it is a sum or the same for all can't be seen."""
    torch.manual_seed(0)
    agent, model = Agent(), Tight(Counting())
    Split(agent, torch, lambda: False).watch([model])
    plain, x = model.model, torch.randn(SIZE, 8)
    y = plain.net(x).argmax(1)
    y[:2] = (y[:2] + 1) % 50

    _loss, right = model(x, y)
    with pytest.raises(torch.cuda.OutOfMemoryError, match="was zero for all"):
        right.item()
    assert "was zero for all" in agent.told("declined")[0]["because"]


def test_a_loss_of_very_many_terms_is_made_as_well() -> None:
    """One for each word of a long text, as decoders have it; and one that takes itself twice at each turn."""

    def loop(model: nn.Module) -> list[float]:
        x, y = torch.randn(SIZE, 8), torch.randint(0, 3, (SIZE,))
        out = model(x)
        loss: Any = 0
        for _ in range(500):
            loss = loss + F.cross_entropy(out, y) / 500
        twice = out.tanh() / 4
        for _ in range(40):
            twice = (twice + twice) / 2
        out.requires_grad_()  # all of it is made with the outputs of the full batch
        (loss + twice.mean()).backward()
        return [loss.item(), twice.mean().item()]

    both(net, loop)


class Own(nn.Module):
    """Makes its own loss."""

    def __init__(self, loss_of: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self.net, self.loss_of, self.classes = net(), loss_of, torch.tensor([1.0, 2.0, 5.0])

    def forward(self, x: Any, y: Any) -> Any:
        return self.loss_of(self.net(x), y, self.classes)


def balance(out: Any, _y: Any, _w: Any) -> Any:
    """Of experts: how much is sent to each, by how many are."""
    share = out.softmax(1)
    return (share.mean(0) * F.one_hot(share.argmax(1), 3).double().mean(0)).sum() + share.pow(2).mean()


OWN: dict[str, Callable[[Any, Any, Any], Any]] = {
    "classes with weights": lambda out, y, w: F.cross_entropy(out, y, weight=w),
    "labels of its own": lambda out, y, _w: F.cross_entropy(out, y.masked_fill(y == 2, -100)),
    "a mean by a mask": lambda out, y, _w: (out.pow(2).mean(1) * (y < 2)).sum() / (y < 2).sum(),
    "targets with an axis less": lambda out, y, _w: F.mse_loss(out[:, :1], y.double()),
    "a threshold": lambda out, _y, _w: out.pow(2).mean().clamp(min=1e-9),
    "a balance of experts": balance,
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("kind", OWN)
def test_a_models_own_loss_that_adds_up_by_chance_is_declined(kind: str) -> None:
    """For two samples of one class it does."""
    torch.manual_seed(0)
    agent, model = Agent(), Tight(Own(OWN[kind]))
    Split(agent, torch, lambda: False).watch([model])
    x, y = torch.randn(SIZE, 8), torch.randint(0, 3, (SIZE,))
    x[1] = x[0] + 0.01
    y[:2] = 0
    with pytest.raises(torch.cuda.OutOfMemoryError, match="Tried to allocate"):
        model(x, y)

    assert [told["because"] for told in agent.told("declined")] == [
        "a loss or figure of the whole batch need not be the sum or mean of its samples'"
    ]


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda out, y, _w: F.cross_entropy(out, y, label_smoothing=0.1) + 0.1 * out.pow(2).mean(),
        lambda out, _y, _w: out.pow(2).sum() / len(out) + torch.zeros(()),
        lambda out, y, _w: torch.stack([out.mean(), F.cross_entropy(out, y)]).mean(),
        lambda out, y, w: F.cross_entropy(out, y.clone()) * w.max().sqrt() + w.norm(),
    ],
)
def test_a_models_own_loss_that_adds_up_is_made_in_chunks(loss_of: Callable[[Any, Any, Any], Any]) -> None:
    def loop(model: nn.Module) -> list[float]:
        return steps(model, lambda model, _n: model(torch.randn(SIZE, 8), torch.randint(0, 3, (SIZE,))))

    both(lambda: Own(loss_of), loop)


def test_a_mean_of_samples_of_unlike_lengths_is_proven_but_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a mean of its own words, though the numbers of labels that count differ in every batch."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Embedding(9, 8), nn.Tanh(), nn.Linear(8, 9))

        def forward(self, x: Any, y: Any) -> Any:
            each = F.cross_entropy(self.net(x).transpose(1, 2), y, reduction="none")
            return (each.sum(1) / (y >= 0).sum(1)).mean()

    def loss_of(model: nn.Module, _n: int) -> Any:
        x = torch.randint(0, 9, (SIZE, 6))
        y = x.clone()
        for i in range(SIZE):
            y[i, 6 - i % 5 :] = -100
        return model(x, y)

    proven: list[Any] = []
    prove = proof.prove
    monkeypatch.setattr(proof, "prove", lambda *args: proven.append(1) or prove(*args))
    both(Words, lambda model: steps(model, loss_of))
    assert len(proven) <= 3
