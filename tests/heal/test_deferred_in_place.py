"""What is written into an output or hung on it is met by all that share its memory, as with room for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402, N812

from tests.heal.test_by_sample import SIZE, STEPS, as_before, both, net  # noqa: E402, F401 - a fixture

pytestmark = pytest.mark.torch

Step = Callable[[Any, Any, Any, list[Any]], Any]


def after_a_softmax(out: Any, y: Any, t: Any, _told: list[Any]) -> Any:
    """What was made before keeps its numbers."""
    share = out.softmax(1)
    out.mul_(2)
    return F.cross_entropy(out, y) + (share * t).sum(1).mean()


def rows_left_out(out: Any, y: Any, t: Any, _told: list[Any]) -> Any:
    bent = out.tanh()
    out[:, 0] = 0
    return F.cross_entropy(out, y) + (bent * t).mean()


def without_a_graph(out: Any, y: Any, _t: Any, _told: list[Any]) -> Any:
    with torch.no_grad():
        out.mul_(3)
    return F.cross_entropy(out, y)


def by_its_data(out: Any, y: Any, _t: Any, _told: list[Any]) -> Any:
    out.data[:, 0] = -1
    return F.cross_entropy(out, y)


def by_a_detached_one(out: Any, y: Any, _t: Any, _told: list[Any]) -> Any:
    out.detach().masked_fill_(out.detach() > 0.3, 0.3)
    return F.cross_entropy(out, y)


def by_a_layer(out: Any, y: Any, _t: Any, _told: list[Any]) -> Any:
    above = F.relu(out, inplace=True)
    return F.cross_entropy(out, y) + above.mean()


def into_a_result(out: Any, y: Any, _t: Any, told: list[Any]) -> Any:
    shares = torch.empty_like(out, requires_grad=False)
    with torch.no_grad():
        torch.exp(out, out=shares)
    told.append(shares)
    return F.cross_entropy(out, y)


def a_kept_loss(out: Any, y: Any, _t: Any, told: list[Any]) -> Any:
    """`loss.detach()` lies where the loss does, and so does what is divided in place."""
    loss = F.cross_entropy(out, y)
    told.append(loss.detach())
    loss /= 4
    return loss


def a_running_loss(out: Any, y: Any, _t: Any, told: list[Any]) -> Any:
    loss = F.cross_entropy(out, y)
    more = loss.detach()
    more += 1
    told.append(more)
    return loss


def a_hook_after_the_loss(out: Any, y: Any, _t: Any, _told: list[Any]) -> Any:
    loss = F.cross_entropy(out, y)
    out.register_hook(lambda gradient: gradient * 3)
    return loss


def kept_gradients(out: Any, y: Any, _t: Any, told: list[Any]) -> Any:
    loss = F.cross_entropy(out, y)
    out.retain_grad()
    loss.retain_grad()
    told += [lambda: out.grad, lambda: loss.grad]
    return loss * 2


def a_gradient_of_outputs(out: Any, y: Any, _t: Any, told: list[Any]) -> Any:
    loss = F.cross_entropy(out, y)
    told.append(torch.autograd.grad(loss, out, retain_graph=True)[0])
    return loss


def a_shape_of_another_kind(out: Any, y: Any, _t: Any, told: list[Any]) -> Any:
    out.unsqueeze_(2)
    told.append(torch.tensor(list(out.shape)))
    return F.cross_entropy(out, y[:, None])


STEPS_OF: tuple[Step, ...] = (
    after_a_softmax, rows_left_out, without_a_graph, by_its_data, by_a_detached_one, by_a_layer, into_a_result,
    a_kept_loss, a_running_loss, a_hook_after_the_loss, kept_gradients, a_gradient_of_outputs, a_shape_of_another_kind,
)  # fmt: skip


@pytest.mark.parametrize("step", STEPS_OF, ids=lambda step: step.__name__)
def test_outputs_are_written_to_as_with_room_for_all(step: Step) -> None:
    def loop(model: Any) -> list[float]:
        optimizer, told = torch.optim.SGD(model.parameters(), lr=0.1), []
        for _ in range(STEPS):
            kept: list[Any] = []
            x, y, t = torch.randn(SIZE, 8), torch.randint(0, 3, (SIZE,)), torch.randn(SIZE, 3)
            loss = step(model(x), y, t, kept)
            optimizer.zero_grad()
            loss.backward()
            made = [one() if callable(one) else one for one in kept]
            told += [value for one in [loss, *made] for value in one.detach().flatten().tolist()]
            optimizer.step()
        return told

    both(net, loop)


def test_each_row_that_is_read_without_a_graph_does_not_cost_a_call() -> None:
    seen = []

    def loop(model: Any) -> list[float]:
        x, y = torch.randn(SIZE, 8), torch.randint(0, 3, (SIZE,))
        out = model(x)
        F.cross_entropy(out, y).backward()
        model.seen.sizes.clear()
        with torch.no_grad():
            told = [out[n].argmax().item() for n in range(SIZE)]
        seen.append(sum(model.seen.sizes))
        return told

    both(net, loop)
    assert seen[1] <= 3 * SIZE
