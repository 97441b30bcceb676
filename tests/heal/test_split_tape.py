"""Loops with a GradientTape whose step does not fit, under --heal: run in parts, with the same update."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.beacon.guest_run import Run, run
from tests.heal.conftest import Three
from tests.heal.tight_keras import tight

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

pytestmark = pytest.mark.tensorflow

LOOP = (
    """
import json, os
import keras
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(0)
x = rng.normal(size=(330, 10)).astype("float32")
y = (x @ np.arange(10, dtype="float32"))[:, None]
numbers = rng.integers(0, 50, (330, 3))
"""
    + tight(9)
    + """
BETWEEN = {"batch norm": keras.layers.BatchNormalization, "dropout": lambda: keras.layers.Dropout(0.3), "tight": Tight}


def loss_of(what, out, wanted):
    if what == "sum":
        return tf.reduce_sum((out - wanted) ** 2) / 32.0
    if what == "contrast":
        return tf.reduce_mean((out - tf.transpose(out)) ** 2)
    return tf.reduce_mean((out - wanted) ** 2)


def clipped(what, grads):
    if what == "clipped":
        return tf.clip_by_global_norm(grads, 0.5)[0]
    if what == "clipped each":
        return [tf.clip_by_norm(tf.clip_by_value(one, -0.3, 0.3), 0.2) for one in grads]
    if what == "clipped and scaled":
        return [one * 0.5 for one in tf.clip_by_global_norm(grads, 0.5)[0]]
    return grads


def train(what):
    keras.utils.set_random_seed(1)
    between = [BETWEEN[what]()] if what in BETWEEN else []
    model = keras.Sequential([keras.layers.Dense(32, activation="tanh"), *between, keras.layers.Dense(1)])
    words = keras.layers.Embedding(50, 10)
    optimizer = keras.optimizers.Adam(0.01)
    optimizers = [optimizer, keras.optimizers.SGD(0.001)][: 2 if what == "twice" else 1]
    if what == "scaled":
        optimizers = [keras.optimizers.LossScaleOptimizer(optimizer)]
    seen, error = keras.metrics.Mean(), keras.metrics.MeanAbsoluteError()

    def step(given, wanted, *, scale=1.0):
        with tf.GradientTape() as tape:
            out = model(words(given)[:, 0] if what == "rows" else given, training=True)
            loss = loss_of(what, out, wanted) * scale
            if loss > 1e9:  # for AutoGraph
                loss = loss * 2.0
        weights = model.trainable_variables + (words.trainable_variables if what == "rows" else [])
        grads = clipped(what, tape.gradient(loss, weights))
        for one in optimizers:
            if what != "now and then" or loss < 1e9:
                one.apply_gradients(zip(grads, weights))
        seen.update_state(loss)
        error(wanted, out)
        return (loss, seen.result()) if what == "result" else {"loss": loss, "out": out, "samples": tf.shape(given)[0]}

    class Trainer:
        @tf.function
        def method(self, given, wanted, scale):
            return step(given, wanted, scale=scale)

    step.__name__ = what
    if what == "method":
        trainer = Trainer()
        call = trainer.method
    elif what == "eager":
        call = step
    else:
        call = tf.function(step, jit_compile=True if what == "compiled" else None)
    told = []
    for epoch in range(2):
        for at in range(0, 330, 32):
            given, wanted = (numbers if what == "rows" else x)[at : at + 32], y[at : at + 32]
            if what != "numpy":
                given, wanted = tf.constant(given), tf.constant(wanted)
            made = call(given, wanted, scale=0.5)
            made = made if what == "result" else (made["loss"], *made["out"].numpy().ravel(), made["samples"])
            told += [float(value) for value in made]
    weights = [value for weight in model.get_weights() for value in weight.ravel().tolist()]
    metrics = [float(seen.result()), float(error.result())]
    return {"updates": int(optimizer.iterations.numpy()), "told": told, "weights": weights, "metrics": metrics}


print(json.dumps({what: train(what) for what in os.environ["WHAT"].split(", ")}))
"""
)
EXACT = ["mean", "sum", "clipped", "clipped each", "rows", "compiled", "method", "numpy"]
EQUIVALENT = {
    "batch norm": "BatchNormalization takes its statistics from each part",
    "dropout": "random numbers are drawn anew for each part",
    "result": "what it returns and its metrics are told part by part",
}
DECLINED = {
    "contrast": "the gradients of two halves do not make those of the whole",
    "twice": "its step makes 2 updates, and parts make one",
    "now and then": "its update is made under a condition",
    "scaled": "its update is made under a condition",
    "clipped and scaled": "it clips gradients and goes on with them before they are applied",
}
ALL = [*EXACT, *EQUIVALENT, *DECLINED, "eager"]
CALM = ["mean", "compiled", "method", "dropout", "result", "twice", "eager"]


def found(done: Run) -> dict[str, Any]:
    assert done.code == 0, done.err
    assert done.kind("guest-error") == []
    read: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    return read


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["updates"] == other["updates"]
    for name in ("told", "weights", "metrics"):
        assert one[name] == pytest.approx(other[name], rel=1e-3, abs=1e-5), name


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """All kinds of steps as they are, some under --heal in calm, and all with a split asked for."""
    ways: dict[str, tuple[list[str], dict[str, Any]]] = {
        "plain": (ALL, {"guest": False}),
        "calm": (CALM, {"HOLTER_HEAL": "safe"}),
        "split": (ALL, {"HOLTER_HEAL": "safe", "HOLTER_SPLIT": "4"}),
    }
    return {
        name: run(tmp_path_factory.mktemp(name), LOOP, WHAT=", ".join(kinds), **how)
        for name, (kinds, how) in ways.items()
    }


def said(done: Run, kind: str, what: str) -> list[dict[str, Any]]:
    return [event for event in done.kind(kind) if event["model"] == what]


@pytest.mark.parametrize("what", EXACT)
def test_weights_metrics_and_what_is_returned_are_those_of_whole_batches(runs: dict[str, Run], what: str) -> None:
    """With an uneven last batch; a mean or a sum, sparse gradients, clipped ones, values for each sample."""
    assert_same(found(runs["split"])[what], found(runs["plain"])[what])
    (act,) = said(runs["split"], "intervention", what)
    assert (act["act"], act["keeps"], act["batch"], act["rows"]) == ("split-batch", "exact", 32, 8)


@pytest.mark.parametrize("what", EQUIVALENT)
def test_what_is_not_exact_is_said_to_be_equivalent(runs: dict[str, Run], what: str) -> None:
    assert found(runs["split"])[what]["updates"] == 22
    (act,) = said(runs["split"], "intervention", what)
    assert (act["keeps"], act["because"]) == ("equivalent", EQUIVALENT[what])


@pytest.mark.parametrize("what", DECLINED)
def test_what_cannot_be_split_is_run_whole_and_said_with_the_reason(runs: dict[str, Run], what: str) -> None:
    assert_same(found(runs["split"])[what], found(runs["plain"])[what])
    assert said(runs["split"], "intervention", what) == []
    (declined,) = said(runs["split"], "declined", what)
    assert declined["because"].startswith(DECLINED[what])


def test_a_batch_in_parts_is_one_step(runs: dict[str, Run]) -> None:
    assert runs["calm"].slots[-1].step == 22 * len(CALM)
    assert runs["split"].slots[-1].step == 22 * len(ALL)


def test_in_calm_nothing_is_done_and_nothing_differs(runs: dict[str, Run]) -> None:
    """Not a bit; compiled with XLA, an update that may be left out is another program."""
    calm, plain = found(runs["calm"]), found(runs["plain"])
    assert_same(calm.pop("compiled"), plain.pop("compiled"))
    assert calm == {what: plain[what] for what in calm}
    assert runs["calm"].kind("intervention") == runs["calm"].kind("declined") == []


def test_a_real_resource_exhausted_error_loses_no_step(runs: dict[str, Run], tmp_path: Path) -> None:
    tight = run(tmp_path, LOOP, WHAT="tight", HOLTER_HEAL="safe")

    assert_same(found(tight)["tight"], found(runs["plain"])["mean"])
    (act,) = tight.kind("intervention")
    text = "the batch of 32 did not fit: it is run in 4 parts of up to 8"
    assert (act["step"], act["keeps"], act["text"]) == (1, "exact", text)
    assert tight.slots[-1].step == 22


FREED = """
import gc, weakref
import keras
import tensorflow as tf


class Trainer:
    def __init__(self):
        self.model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        self.optimizer = keras.optimizers.SGD()
        self.step = tf.function(self._step)

    def _step(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.model(x) ** 2)
        weights = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))


kept = []
for number in range(6):
    trainer = Trainer()
    trainer.step(tf.ones((8, 4)))
    kept.append(weakref.ref(trainer))
    del trainer
gc.collect()
print(sum(one() is not None for one in kept))
"""


@pytest.mark.parametrize("parts", ["1", "4"])
def test_a_trainer_goes_when_nothing_but_the_reflex_knows_it(tmp_path: Path, parts: str) -> None:
    """Its function is made of a method of its own, which holds it."""
    healed = run(tmp_path / "healed", FREED, HOLTER_HEAL="safe", HOLTER_SPLIT=parts)

    assert healed.out == run(tmp_path / "plain", FREED, guest=False).out
    assert bool(healed.kind("intervention")) is (parts == "4")


LARGE = """
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    between = [keras.layers.Activation(name) for name in ("tanh", "sigmoid", "softsign", "tanh", "sigmoid")]
    first = keras.layers.PReLU(shared_axes=[1])  # so that the backward pass goes through all of them
    model = keras.Sequential([keras.Input((1 << 15,)), first, *between, keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(1e-3)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    x = tf.random.stateless_normal((768, 1 << 15), (1, 2))
    for number in range(3):
        print("%.4f" % float(step(x, x[:, :1])))
    """


def test_a_batch_the_kernel_would_kill_for_is_split_before_its_first_step(
    three_ways: Callable[[str, int], Three],
) -> None:
    dies, _free, healed = three_ways(LARGE, 900 << 20)

    assert dies.code in (137, -9, 139, 134)  # TensorFlow may crash where the kernel refuses it memory
    (act,) = healed.verdict()["interventions"]
    assert (act["act"], act["keeps"], act["step"]) == ("split-batch", "exact", 1)
    assert act["text"].startswith("the batch of 768 would take ")
