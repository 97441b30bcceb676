"""A cross-entropy that does not fit is computed in parts: the same loss and the same gradient."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402, N812

from holter.agent.heal.soft_limit import NoWall  # noqa: E402
from holter.agent.torch.heal.loss import LossSplit  # noqa: E402
from holter.agent.torch.heal.split import Split  # noqa: E402
from tests.heal.test_split_batch import Agent  # noqa: E402

pytestmark = pytest.mark.torch

ROWS, CLASSES = 1100, 1000
ROOM = [0]  # bytes, in place of what a few rows take


class Cramped:
    """A device with room for a few rows of the loss."""

    wall = NoWall()

    def __init__(self) -> None:
        self.ran = 0

    def left(self) -> int:
        return ROOM[0] or CLASSES * 12 * 100

    def ran_out(self) -> None:
        self.ran += 1


@pytest.fixture
def reflex() -> Any:
    before, ROOM[0] = F.cross_entropy, 0
    agent = Agent()
    split = Split(agent, torch, lambda: False)
    LossSplit(split).patch()
    split.rooms[torch.device("cpu")] = Cramped()
    yield agent
    F.cross_entropy = before


def labels() -> Any:
    found = torch.randint(0, CLASSES, (ROWS,))
    found[::7] = -100
    return found


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "mean": (labels, {}),
    "sum": (labels, {"reduction": "sum"}),
    "class weights": (labels, {"weight": "weights"}),
    "smoothed": (labels, {"label_smoothing": 0.1}),
    "smoothed with weights": (labels, {"label_smoothing": 0.1, "weight": "weights"}),
    "another ignored label": (lambda: torch.randint(0, CLASSES, (ROWS,)), {"ignore_index": 3}),
    "probabilities": (lambda: torch.rand(ROWS, CLASSES).softmax(1), {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_and_its_gradient_are_the_same(reflex: Agent, kind: str) -> None:
    """Whatever the loss is divided by, it is the whole batch's."""
    torch.manual_seed(0)
    make, options = KINDS[kind]
    target = make()
    options = {name: torch.rand(CLASSES) if value == "weights" else value for name, value in options.items()}
    whole = torch.randn(ROWS, CLASSES, requires_grad=True)
    parts = whole.detach().clone().requires_grad_()
    wanted = F.cross_entropy.__wrapped__(whole, target, **options)
    (3 * wanted).backward()

    loss = F.cross_entropy(parts, target, **options)
    (3 * loss).backward()

    torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(parts.grad, whole.grad, rtol=1e-4, atol=1e-9)
    assert [told["act"] for told in reflex.told("intervention")] == ["split-loss"]


@pytest.mark.usefixtures("reflex")
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64"])
def test_the_gradient_is_as_good_in_every_precision(kind: str) -> None:
    """Half precision has no room for what is divided by many samples before the scale of the loss comes."""
    torch.manual_seed(0)
    dtype, target = getattr(torch, kind), labels()
    whole = torch.randn(ROWS, CLASSES, dtype=torch.float64).to(dtype).requires_grad_()
    parts = whole.detach().clone().requires_grad_()
    scale = 2.0**10
    (scale * F.cross_entropy.__wrapped__(whole.double(), target)).backward()
    (scale * F.cross_entropy(parts, target)).backward()

    wanted = whole.grad.double()
    there = wanted != 0
    off = ((parts.grad.double() - wanted).abs()[there] / wanted.abs()[there]).median()
    assert off < {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-12}[kind]


def test_a_loss_that_just_fits_is_computed_at_once_and_nothing_is_told(reflex: Agent) -> None:
    """Its gradient too, where a failure can still be met: in the script's own backward it could not."""
    logits, target = torch.randn(ROWS, CLASSES, requires_grad=True), labels()
    wanted = torch.autograd.grad(F.cross_entropy.__wrapped__(logits, target), logits)
    ROOM[0] = 12 * ROWS * CLASSES
    loss = F.cross_entropy(logits, target)
    ROOM[0] = 0
    found = torch.autograd.grad(loss, logits)

    assert type(loss.grad_fn).__name__ == "LossInPartsBackward"
    torch.testing.assert_close(found, wanted)
    assert reflex.said == []


def test_pictures_with_a_class_for_each_pixel(reflex: Agent) -> None:
    """The samples lie along the first axis, the classes along the second."""
    torch.manual_seed(0)
    whole = torch.randn(20, 21, 50, 60, requires_grad=True)
    parts, target = whole.detach().clone().requires_grad_(), torch.randint(0, 21, (20, 50, 60))
    F.cross_entropy.__wrapped__(whole, target).backward()
    F.cross_entropy(parts, target).backward()

    torch.testing.assert_close(parts.grad, whole.grad, rtol=1e-4, atol=1e-9)
    assert reflex.told("intervention")


def test_a_second_backward_through_the_same_graph(reflex: Agent) -> None:
    """The gradient that was handed over is computed once more."""
    logits, target = torch.randn(ROWS, CLASSES, requires_grad=True), labels()
    loss = F.cross_entropy(logits, target)
    loss.backward(retain_graph=True)
    first = logits.grad.clone()
    loss.backward()

    torch.testing.assert_close(logits.grad, 2 * first)
    assert reflex.told("intervention")


def test_a_graph_of_the_backward_is_there_when_it_is_wanted(reflex: Agent) -> None:
    logits, target = torch.randn(ROWS, CLASSES, requires_grad=True), labels()
    (slope,) = torch.autograd.grad(F.cross_entropy(logits, target), logits, create_graph=True)

    assert slope.pow(2).sum().requires_grad
    assert reflex.told("intervention")


@pytest.mark.parametrize("kind", ["small", "single losses", "no gradient"])
def test_other_losses_are_left_alone(reflex: Agent, kind: str) -> None:
    """A small one, one for each sample, and one without a gradient are computed as ever."""
    rows = 10 if kind == "small" else ROWS
    logits, target = torch.randn(rows, CLASSES, requires_grad=kind != "no gradient"), labels()[:rows]
    F.cross_entropy(logits, target, reduction="none" if kind == "single losses" else "mean")

    assert reflex.said == []
