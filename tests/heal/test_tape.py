"""Loops with a GradientTape under --heal: an update that is non-finite is not made, whichever way the step is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agent_run import Run, run
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
how, what = os.environ["HOW"], os.environ["WHAT"]
batches = [(x[at : at + 32], y[at : at + 32]) for at in range(0, 3200, 32)]
if what == "two":
    batches[28][0][4, 3] = np.nan
    batches[62][0][16, 1] = np.inf
elif what == "all":
    x[:, 0] = np.nan
elif what == "skipped":
    batches = [batch for at, batch in enumerate(batches) if at not in (28, 62)]
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


def told(done: Run) -> dict[str, Any]:
    assert done.code == 0, done.err
    assert done.kind("guest-error") == []
    found: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    return found


def test_the_weights_of_an_eager_loop_are_those_of_one_that_skipped_the_batches_by_hand(tmp_path: Path) -> None:
    """Moments and the optimizer's count too: as if they had not been there."""
    healed = run(tmp_path / "healed", LOOP, HOW="apply", WHAT="two", HOLTER_HEAL="safe")
    skipped = run(tmp_path / "skipped", LOOP, HOW="apply", WHAT="skipped")

    assert told(healed) == told(skipped)
    assert [(act["act"], act["keeps"], act["step"], act["text"]) for act in healed.kind("intervention")] == [
        ("hold-update", "equivalent", step, f"the update of step {step} was left out: a gradient is not finite")
        for step in (29, 63)
    ]


@pytest.mark.parametrize("how", ["traced", "compiled"])
def test_a_traced_step_is_left_as_it_is_and_that_is_said(tmp_path: Path, how: str) -> None:
    """Its graph is the user's: with a bad batch it ends as without --heal, with the cure told once."""
    healed = run(tmp_path / "healed", LOOP, HOW=how, WHAT="two", HOLTER_HEAL="safe", HOLTER_SPLIT="2")
    plain = run(tmp_path / "plain", LOOP, agent=False, HOW=how, WHAT="two")

    assert healed.out == plain.out
    assert healed.kind("intervention") == []
    assert [(event["act"], event["because"]) for event in healed.kind("declined")] == [
        (
            "split-batch",
            "a loop with a GradientTape makes its updates itself: give it smaller batches and add up their gradients",
        ),
        (
            "hold-update",
            "the update is made inside a tf.function: skip it there where the loss is not finite, with tf.cond",
        ),
    ]


def test_where_every_update_is_bad_it_lets_go_and_says_so(tmp_path: Path) -> None:
    """No batch is to blame: the run is not kept going as if something were learnt."""
    done = run(tmp_path, LOOP, HOW="apply", WHAT="all", HOLTER_HEAL="safe")

    (event,) = done.kind("declined")
    assert "no batch is to blame" in event["because"]
    assert told(done)["updates"] == 100 - 32


def test_without_heal_nothing_is_held_back(tmp_path: Path) -> None:
    done = run(tmp_path, LOOP, HOW="apply", WHAT="two")

    assert told(done)["updates"] == 100
    assert done.kind("intervention") == []
