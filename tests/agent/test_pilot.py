"""One small gradient stands for all: what is non-finite in it is seen, wherever it lies and however it is stored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holter.agent.torch.nonfinite.watch import Pilot
from holter.agent.torch.observe.visibility import Unseen

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def pilot(*shape: int, dtype: str = "float32") -> tuple[Pilot, object]:
    parameter = torch.nn.Parameter(torch.ones(shape, dtype=getattr(torch, dtype)))
    found = Pilot(torch, Unseen(torch))
    found.choose(torch.optim.SGD([parameter], lr=0.1))
    return found, parameter


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("shape", [(6,), (16,), (4, 4), (1,)])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_gradient_that_is_no_number_is_seen(dtype: str, shape: tuple[int, ...], value: float) -> None:
    """In every precision and shape."""
    found, parameter = pilot(*shape, dtype=dtype)
    parameter.grad = torch.ones_like(parameter)
    assert not found.is_bad()

    parameter.grad.view(-1)[-1] = value
    assert found.is_bad()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.full((2 * p.numel(),), float("nan"))[::2],
        lambda p: torch.full_like(p, float("nan"), dtype=torch.float64),
    ],
    ids=["every second element", "another precision"],
)
def test_a_gradient_that_is_stored_otherwise_is_read_by_pytorch(make: Callable[[object], object]) -> None:
    """Its memory is not what it was when the pilot was chosen."""
    found, parameter = pilot(8)
    object.__setattr__(found, "ref", lambda: type("Holder", (), {"grad": make(parameter)}))

    assert found.is_bad()


def freed(parameter: torch.nn.Parameter) -> torch.Tensor:
    gradient = torch.full_like(parameter, float("nan"))
    gradient.untyped_storage().resize_(0)
    return gradient


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.full_like(p, float("nan"), device="meta"),
        freed,
        lambda p: torch.ones(p.numel() // 2),
        lambda p: torch.full_like(p, float("nan")).to_sparse(),
    ],
    ids=["on another device", "given back", "smaller", "sparse"],
)
def test_a_gradient_that_is_not_there_any_more_is_not_read(make: Callable[[object], torch.Tensor]) -> None:
    """A model that was moved after its optimizer was made: to read where its gradient is not would end the process."""
    found, parameter = pilot(8)
    object.__setattr__(found, "ref", lambda: type("Holder", (), {"grad": make(parameter)}))

    assert not found.is_bad()


def test_a_bias_is_chosen_before_a_weight() -> None:
    """Each of its elements belongs to another unit."""
    layer, found = torch.nn.Linear(8, 8), Pilot(torch, Unseen(torch))
    found.choose(torch.optim.SGD(layer.parameters(), lr=0.1))

    assert found.ref() is layer.bias


def test_a_parameter_that_is_gone_is_no_trouble_and_is_replaced() -> None:
    """It is held weakly."""
    found, parameter = pilot(8)
    del parameter
    assert not found.is_bad()

    layer = torch.nn.Linear(8, 8)
    found.choose(torch.optim.SGD(layer.parameters(), lr=0.1))
    assert found.ref() is layer.bias
