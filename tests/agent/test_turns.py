"""A step is one round of the optimizers, however many there are and however they take turns."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from holter.agent.observe.turns import Turns


class Optimizer:
    """Stands for one of PyTorch's: it is known by its first parameter."""

    def __init__(self, parameter: object) -> None:
        self.param_groups = [{"params": [parameter]}]


A, B = Optimizer(object()), Optimizer(object())
AGENTS = [Optimizer(object()) for _ in range(64)]


def steps(turns: Iterable[Optimizer]) -> int:
    counted = Turns()
    return sum(counted.counts(one) for one in turns)


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([A] * 10, 10),
        ([A, B] * 10, 10),
        ([A, A, B] * 10, 20),
        ([A, B, B] * 10, 20),
        ([A, A, A, B] * 10, 30),
        ([A] * 10 + [B] * 10, 20),
        (AGENTS * 7, 7),
    ],
    ids=["one", "GAN", "two of the critic's", "two of the generator's", "alternating", "one after the other", "agents"],
)
def test_a_round_of_optimizers_is_one_step(turns: list[Optimizer], expected: int) -> None:
    """The one that steps most often sets the number."""
    assert steps(turns) == expected


def test_an_optimizer_that_is_made_anew_takes_the_place_of_the_one_before() -> None:
    """It works on the same parameters."""
    parameter = object()

    assert steps(Optimizer(parameter) for _ in range(20)) == 20


def test_folds_with_an_optimizer_each_lose_no_step() -> None:
    """The one before is gone when the next begins."""

    def folds() -> Iterable[Optimizer]:
        for _ in range(5):
            optimizer = Optimizer(object())
            for _ in range(4):
                yield optimizer

    assert steps(folds()) == 20
