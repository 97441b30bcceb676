"""A call of a Keras model outside of training that does not fit, under --heal: run in parts, with the same result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agent_run import Run, run
from tests.heal.tight_keras import tight
from tests.needs import needs

needs("tensorflow", "keras")

pytestmark = pytest.mark.tensorflow

CALLS = (
    """
import json
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(50, 10)).astype("float32")
"""
    + tight(9)
    + """
class Centred(keras.layers.Layer):
    def call(self, x):
        return x - tf.reduce_mean(x, 0, keepdims=True)


def net(name, *between):
    first, second = keras.Input((10,)), keras.Input((10,))
    out = keras.layers.Dense(4, activation="tanh")(keras.layers.Add()([first, second]))
    for layer in (*between, keras.layers.Dropout(0.5), keras.layers.BatchNormalization()):
        out = layer(out)
    return keras.Model([first, second], {"out": out, "more": out[:, :2]}, name=name)


def told(model, given=x, **options):
    try:
        found = model([given, given], **options)
    except tf.errors.ResourceExhaustedError:
        return "ResourceExhaustedError"
    return [value.numpy().ravel().tolist() for value in tf.nest.flatten(found)]


tight, centred, roomy = net("a", Tight()), net("b", Centred(), Tight()), net("c")
fixed = keras.Sequential([keras.Input(batch_shape=(50, 10)), Tight(), keras.layers.Reshape((2, 5))], name="d")
fixed.add(keras.layers.LSTM(3, stateful=True))
for model in (tight, centred, roomy):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model([x[:4], x[:4]], training=True)["out"])
    optimizer = keras.optimizers.SGD(0.0)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
tight.set_weights(roomy.get_weights())
found = {"whole": told(roomy, training=False), "parts": [told(tight, training=False), told(tight)]}
found["few"] = told(tight, x[:3]), told(roomy, x[:3])
found["compared"] = told(centred)
with tf.GradientTape():
    found["taped"] = told(tight)
try:
    fixed(x)
except tf.errors.ResourceExhaustedError:
    found["fixed"] = "ResourceExhaustedError"
found["trained"] = told(tight, training=True)
ends = [keras.Input((10,)), keras.Input((10,))]  # a call that makes a larger model, no evaluation
found["larger"] = keras.Model(ends, keras.layers.Dense(2)(tight(ends)["out"])).output_shape
print(json.dumps(found))
"""
)


def said(done: Run) -> dict[str, Any]:
    assert done.code == 0, done.err
    assert done.kind("guest-error") == []
    read: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    return read


def test_an_evaluation_is_run_in_parts_and_nothing_else_is(tmp_path: Path) -> None:
    """Nested inputs and outputs, more than once; not within a tape, in training, or where samples are compared."""
    healed = run(tmp_path, CALLS, HOLTER_HEAL="safe")
    found = said(healed)

    for parts in found["parts"]:
        for one, other in zip(parts, found["whole"], strict=True):
            assert one == pytest.approx(other, rel=1e-5, abs=1e-6)
    assert found["few"][0] == found["few"][1]
    for kind in ("compared", "taped", "trained", "fixed"):
        assert found[kind] == "ResourceExhaustedError", kind
    assert found["larger"] == [None, 2]
    (act,) = healed.kind("intervention")
    assert (act["act"], act["keeps"], act["batch"], act["rows"]) == ("split-batch", "exact", 50, 7)
    assert [declined["because"] for declined in healed.kind("declined")] == [
        "an evaluation: the samples of a batch depend on each other",
        "an evaluation: a stateful layer keeps a state for each sample of the batch",
    ]


def test_without_heal_the_error_is_the_users(tmp_path: Path) -> None:
    assert said(run(tmp_path, CALLS))["parts"] == ["ResourceExhaustedError"] * 2
