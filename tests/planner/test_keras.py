"""A plan of a Keras model: measured at small sizes in processes of their own, and drawn on in a line."""

from __future__ import annotations

from typing import Any

import pytest

import holter

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def keras() -> Any:
    """Imported when the first of these tests is run, and not by everybody who collects them."""
    return pytest.importorskip("keras")


def test_a_compiled_model_is_planned_and_left_as_it_was(keras: Any) -> None:
    """Weights by their count, two more copies for Adam, and a largest batch that fits."""
    layers = [keras.layers.Dense(256, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((64,)), *layers])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = [w.copy() for w in model.get_weights()]
    plan = holter.plan(model, batch_size=4096, memory="3GB")
    parts = plan.told["parts"]

    assert parts["parameters"] == 4 * model.count_params()
    assert 2 * parts["parameters"] <= parts["optimizer"] < 2.1 * parts["parameters"]
    assert plan.largest_batch > 4096
    assert plan.told["settings"][0]["name"] == "as it is"
    assert all((a == b).all() for a, b in zip(before, model.get_weights(), strict=True))


def test_a_model_that_is_not_compiled_says_what_to_do(keras: Any) -> None:
    """There is no optimizer to plan for."""
    with pytest.raises(ValueError, match="compile"):
        holter.plan(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]))
