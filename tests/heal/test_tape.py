"""Loops with a GradientTape under --heal make their updates themselves: they are left as they are, and that is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.agent_run import printed_alone, run
from tests.needs import needs

needs("tensorflow", "keras")

pytestmark = pytest.mark.tensorflow

LOOP = """
import json, os
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)
rng = np.random.default_rng(0)
x = rng.normal(size=(3200, 10)).astype("float32")
y = (x @ np.arange(10, dtype="float32"))[:, None]
how = HOW
batches = [(x[at : at + 32], y[at : at + 32]) for at in range(0, 3200, 32)]
batches[28][0][4, 3] = np.nan
batches[62][0][16, 1] = np.inf
model = keras.Sequential([keras.Input((10,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(0.01)


def step(given, wanted):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(given, training=True) - wanted) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    if how == "apply":
        optimizer.apply(gradients, model.trainable_variables)
    else:
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


if how != "apply":
    step = tf.function(step, jit_compile=how == "compiled")
for given, wanted in batches:
    step(given, wanted)
weights = [value for weight in model.get_weights() for value in weight.ravel().tolist()]
print(json.dumps({"updates": int(optimizer.iterations.numpy()), "weights": weights}))
"""


WAYS = {how: LOOP.replace("HOW", repr(how)) for how in ("apply", "traced", "compiled")}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the loops print without the agent."""
    folders = {how: tmp_path_factory.mktemp("alone") for how in WAYS}
    found = printed_alone({folders[how]: text for how, text in WAYS.items()})
    return {how: found[folder] for how, folder in folders.items()}


@pytest.mark.parametrize("how", WAYS)
def test_a_loop_with_a_tape_is_left_as_it_is_and_that_is_said(tmp_path: Path, how: str, alone: dict[str, str]) -> None:
    """Its updates are the user's own: with a bad batch it ends as without --heal, with the cure told once."""
    healed = run(tmp_path / "healed", WAYS[how], HOLTER_HEAL="1", HOLTER_SPLIT="2")

    assert healed.code == 0, healed.err
    assert healed.out == alone[how]
    assert healed.kind("intervention") + healed.kind("guest-error") == []
    assert [(event["act"], event["because"]) for event in healed.kind("declined")] == [
        (
            "split-batch",
            "a loop with a GradientTape makes its updates itself: give it smaller batches and add up their gradients",
        ),
        (
            "hold-update",
            "a loop with a GradientTape makes its updates itself: skip one there where the loss is not finite",
        ),
    ]
