"""Keras on TensorFlow healed: a batch in chunks has the same update and metrics, and what is not finite is left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.agent.agent_run import Run, run
from tests.endings.conftest import memory_cgroup  # noqa: F401 - a fixture
from tests.endings.ward import Case
from tests.heal.tight_keras import tight
from tests.needs import needs

needs("tensorflow", "keras")

pytestmark = pytest.mark.tensorflow

BEGIN = """
import json, os, time
import keras
import numpy as np
import tensorflow as tf

layers = keras.layers
keras.utils.set_random_seed(1)
rng = np.random.default_rng(0)
x = rng.normal(size=(44, 6)).astype("float32")
y = rng.integers(0, 3, 44)
w = rng.random(44).astype("float32")
words = rng.integers(0, 9, (44, 7))
crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
summed = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
told = {}


def end(name, model, history):
    told[name] = {
        "history": history.history,
        "weights": [value for weight in model.get_weights() for value in weight.ravel().tolist()],
        "updates": int(model.optimizer.iterations.numpy()),
    }


def fit(name, model, x, y, **options):
    end(name, model, model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0, **options))


def dense(*between, penalty="l2"):
    keras.utils.set_random_seed(1)
    hidden = layers.Dense(16, activation="tanh", kernel_regularizer=penalty)
    return keras.Sequential([keras.Input((6,)), hidden, *between, layers.Dense(3)])
"""
END = """
print(json.dumps(told))
"""
# The end of one part of a script that goes on: what came before it is read by its time.
NEXT = """
print(json.dumps([time.monotonic(), told]))
told.clear()
"""

EXACT = """
model = dense()
model.compile("adam", crossentropy, metrics=["accuracy"])
fit("weights", model, x, y, sample_weight=w)
batch = model.train_on_batch(x[:9], y[:9])

model = dense()
model.compile("adam", crossentropy, metrics=["accuracy"], jit_compile=True)
fit("compiled", model, x, y)

keras.utils.set_random_seed(1)
tagger = [layers.Embedding(9, 8, mask_zero=True), layers.LSTM(8, return_sequences=True), layers.Dense(4)]
model = keras.Sequential([keras.Input((7,), dtype="int32"), *tagger])
model.compile("adam", crossentropy, metrics=["accuracy"])
fit("masks", model, words, words % 4)

keras.utils.set_random_seed(1)
at = keras.Input((6,))
hidden = layers.Dense(8, activation="relu")(at)
model = keras.Model(at, {"a": layers.Dense(3, name="a")(hidden), "b": layers.Dense(1, name="b")(hidden)})
model.compile("sgd", {"a": crossentropy, "b": "mse"}, metrics={"b": "mae"}, loss_weights={"a": 1.0, "b": 0.3})
fit("outputs", model, x, {"a": y, "b": w})

model = dense(penalty=None)
model.compile(keras.optimizers.SGD(1e-3), summed)
fit("sum", model, x, y)
told["batch"] = [float(value) for value in batch]
"""

OWN = """
class Own(keras.Model):
    def __init__(self, *between):
        super().__init__()
        keras.utils.set_random_seed(1)
        self.body = keras.Sequential([layers.Dense(16, activation="tanh"), *between, layers.Dense(3)])
        self.words = layers.Embedding(9, 6)
        self.seen = keras.metrics.Mean(name="loss")

    def call(self, x, training=False):
        return self.body(self.words(x)[:, 0] if x.dtype.is_integer else x, training=training)

    def losses_of(self, x, y):
        return crossentropy(y, self(x, training=True))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.losses_of(x, y)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_weights), self.trainable_weights))
        self.seen.update_state(loss)
        return {"loss": self.seen.result(), "twice": 2 * loss}


class Summed(Own):
    def losses_of(self, x, y):
        return summed(y, self(x, training=True))


class Compiled(Own):
    train_step = tf.function(Own.train_step)


class Contrast(Own):
    def losses_of(self, x, y):
        found = self(x)
        return crossentropy(tf.range(tf.shape(found)[0]), found @ tf.transpose(found))


class Twice(Own):
    def train_step(self, data):
        super().train_step(data)
        return super().train_step(data)


for name, model, at in [
    ("mean", Own(), x), ("rows", Own(), words), ("sum", Summed(), x), ("compiled", Compiled(), x),
    ("dropout", Own(layers.Dropout(0.3)), x), ("norm", Own(layers.BatchNormalization()), x),
    ("contrast", Contrast(), x), ("twice", Twice(), x),
]:
    model.compile(keras.optimizers.Adam(1e-3 if name == "sum" else 1e-2))
    end(name, model, model.fit(at[:32], y[:32], batch_size=16, epochs=2, shuffle=False, verbose=0))
"""

DECLINED = """
class Counting(layers.Layer):
    def build(self, shape):
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        self.calls.assign_add(1.0)
        return x


class Noisy(layers.Layer):
    def call(self, x, training=False):
        return x + tf.random.normal(tf.shape(x)) if training else x


class Centred(layers.Layer):
    def call(self, x):
        return x - tf.reduce_mean(x, 0, keepdims=True)


def contrast(_, found):
    target = tf.range(tf.shape(found)[0])
    return keras.losses.sparse_categorical_crossentropy(target, found @ tf.transpose(found), from_logits=True)


model = dense(Centred())
model.compile("sgd", crossentropy)
fit("mixing", model, x, y)
model = dense()
model.compile("sgd", contrast)
fit("contrast", model, x, y)
model = dense()
model.compile("sgd", summed)
fit("penalty", model, x, y)
model = dense(Counting())
model.compile("sgd", crossentropy)
fit("counting", model, x, y)
model = dense(Noisy())
model.compile("sgd", crossentropy)
fit("noisy", model, x, y)
model = dense()
model.compile("sgd", crossentropy, run_eagerly=True)
fit("eager", model, x, y)
states = keras.Sequential([keras.Input(batch_shape=(4, 7, 1)), layers.LSTM(3, stateful=True), layers.Dense(3)])
states.compile("sgd", crossentropy)
end("states", states, states.fit(words[:44, :, None], y, batch_size=4, shuffle=False, verbose=0))
"""


def said(done: Run) -> dict[str, Any]:
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out.strip().splitlines()[-1])
    return found


def assert_same(one: Any, other: Any, within: float = 2e-5) -> None:
    """Every number of the one is that of the other."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key], within)
    else:
        assert one == pytest.approx(other, rel=within, abs=within)


class Compared(NamedTuple):
    """One part of the script: as it is, with its batches in chunks, and what was told of that."""

    wanted: dict[str, Any]
    found: dict[str, Any]
    split: Run


@pytest.fixture(scope="module")
def in_parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Compared]:
    """All that is run in chunks of up to 4, in one process: to import TensorFlow takes longer than any of it."""
    text = BEGIN + EXACT + NEXT + OWN + NEXT + DECLINED + NEXT
    plain = run(tmp_path_factory.mktemp("plain"), text)
    split = run(tmp_path_factory.mktemp("split"), text, HOLTER_HEAL="1", HOLTER_SPLIT="4")
    compared, begin = {}, 0.0
    for name, one, other in zip(("exact", "own", "declined"), parts_of(plain), parts_of(split), strict=True):
        events = [event for event in split.events if begin <= event["m"] < other[0]]
        compared[name], begin = Compared(one[1], other[1], split._replace(events=events)), other[0]
    return compared


def parts_of(done: Run) -> list[tuple[float, dict[str, Any]]]:
    """Of each part when it was over, and what it came to."""
    assert done.code == 0, done.err
    return [(ended, told) for ended, told in map(json.loads, done.out.strip().splitlines())]


def test_a_batch_in_parts_has_the_same_update_and_metrics(in_parts: dict[str, Compared]) -> None:
    """Sample weights, XLA, masks, several outputs, a sum, uneven last batches; exact is said where all was the same."""
    wanted, found, split = in_parts["exact"]

    for name in ("weights", "compiled", "masks", "batch"):
        assert_same(found[name], wanted[name])
    for name in ("outputs", "sum"):
        assert_same(found[name]["weights"], wanted[name]["weights"])
        assert found[name]["updates"] == wanted[name]["updates"]
    acts = split.kind("intervention")
    assert acts[0]["text"] == "the batch of 16 would not fit: it is run in 4 chunks of up to 4"
    assert [act["keeps"] for act in acts] == ["exact"] * 3 + ["equivalent"] * 2
    assert acts[-1]["because"] == "what it tells of its metrics is made of those of the chunks"
    assert split.kind("declined") + split.kind("guest-error") == []


TIGHT = (
    BEGIN
    + tight(5)
    + """
model = dense(Tight())
model.compile("adam", crossentropy, metrics=["accuracy"])
fit("weights", model, x, y, sample_weight=w)
"""
    + END
)


def test_parts_that_really_run_out_of_memory_are_halved_and_no_step_is_lost(tmp_path: Path) -> None:
    """As the next attempt runs it after a step that did not fit; the first fails, since its batch is gone with it."""
    fails, halves = (
        run(tmp_path / "a", TIGHT, HOLTER_HEAL="1"),
        run(tmp_path / "b", TIGHT, HOLTER_HEAL="1", HOLTER_SPLIT="2"),
    )
    wide = run(tmp_path / "c", TIGHT.replace("dense(Tight())", "dense()"))

    assert fails.code == 1
    assert "ResourceExhaustedError" in fails.err
    assert fails.kind("intervention") + fails.kind("declined") + fails.kind("guest-error") == []
    assert_same(said(halves), said(wide))
    (act,) = halves.kind("intervention")
    assert (act["step"], act["keeps"], act["batch"], act["rows"]) == (1, "exact", 16, 4)
    assert act["text"] == "the batch of 16 would not fit: it is run in 4 chunks of up to 4"


def test_a_batch_the_kernel_kills_for_is_run_in_parts_by_the_next_attempts(
    tmp_path: Path,
    memory_cgroup: Callable[[int], Callable[[], None]],  # noqa: F811
) -> None:
    """In two, then four, then eight: the run is done, and no step is lost."""
    leaves = (Path(__file__).parents[1] / "patients" / "keras_leaf_photos.py").read_text()
    leaves = leaves.replace("range(4)", "range(1)")
    case = Case(tmp_path, leaves).start(options=["--heal"], before=memory_cgroup(1500 << 20))

    assert case.finish().code == 0, case.err
    acts = case.verdict()["interventions"]
    assert (acts[-1]["act"], acts[-1]["keeps"], acts[-1]["step"]) == ("split-batch", "exact", 1)
    assert acts[-1]["text"].startswith("the batch of 512 would not fit: it is run in ")


EVALUATION = (
    BEGIN
    + tight(5)
    + """
model = dense(Tight())
model(x[:4])
model(x)
"""
)


def test_an_evaluation_that_does_not_fit_fails_as_it_would_alone(tmp_path: Path) -> None:
    """A call of a model outside of `fit` is the script's own, also under --heal."""
    done = run(tmp_path, EVALUATION, HOLTER_HEAL="1")

    assert done.code == 1
    assert "ResourceExhaustedError" in done.err
    assert "holter" not in done.err
    assert done.kind("intervention") + done.kind("guest-error") == []


def test_a_step_of_ones_own_in_parts_is_proven_on_a_few_samples(in_parts: dict[str, Compared]) -> None:
    """The same update, equivalent with the reason, or declined: where it compares samples or makes several updates."""
    wanted, found, split = in_parts["own"]

    for name in ("mean", "rows", "compiled", "sum"):
        assert_same(found[name]["weights"], wanted[name]["weights"])
    for name in ("contrast", "twice"):
        assert found[name] == wanted[name]
    reasons = [act["because"] for act in split.kind("intervention")]
    assert "random layers such as Dropout draw anew for each chunk" in reasons
    assert "BatchNormalization takes its statistics from each chunk" in reasons
    assert {event["model"]: event["because"] for event in split.kind("declined")} == {
        "Contrast": "the gradients of two chunks do not add up to those of the full batch",
        "Twice": "its step makes 2 updates",
    }
    assert split.kind("guest-error") == []


def test_what_cannot_be_proven_is_declined_and_run_as_it_is(in_parts: dict[str, Compared]) -> None:
    """Samples that depend on each other, a penalty on a sum, a layer that counts, noise, eager and stateful models."""
    wanted, found, split = in_parts["declined"]

    for name in wanted:
        if name != "noisy":  # which draws as many numbers as it is called
            assert found[name] == wanted[name], name
    reasons = [event["because"] for event in split.kind("declined")]
    assert reasons[:3] == ["the gradients of two chunks do not add up to those of the full batch"] * 3
    assert "which would be another" in reasons[3]
    assert reasons[4:] == [
        "the gradients of two chunks do not add up to those of the full batch",
        "the model is run eagerly",
        "a stateful layer keeps a state for each sample of the batch",
    ]
    assert split.kind("intervention") + split.kind("guest-error") == []


NAN = (
    BEGIN
    + """
kind = os.environ["KIND"]
if kind == "skipped":
    kept = [*range(16), *range(32, 44)]
    x, y = x[kept], y[kept]
else:
    x[20, 2] = np.nan
model = dense(layers.BatchNormalization(), layers.Dropout(0.3))
model.compile("adam", crossentropy, metrics=["accuracy"])
fit("nan", model, x, y)
if kind != "skipped":
    model.train_on_batch(x[:16], y[:16])
    told["batch"] = float(model.train_on_batch(x[16:32], y[16:32])[0])
"""
    + END
)


def test_a_batch_with_a_nan_is_undone_and_from_then_on_held_back(tmp_path: Path) -> None:
    """The first has been learnt from: back to the state before. After that no bad batch leaves a trace."""
    healed = run(tmp_path / "healed", NAN, KIND="nan", HOLTER_HEAL="1")
    found = said(healed)

    assert all(value == value for value in found["nan"]["weights"])
    assert all(value == value for value in found["nan"]["history"]["loss"][1:])
    assert found["batch"] != found["batch"]  # of a batch that is left out there is no loss
    acts = [(act["act"], act["keeps"], act["step"]) for act in healed.kind("intervention")]
    assert acts == [("go-back", "equivalent", 2), *(("hold-update", "equivalent", step) for step in (5, 8))]
    assert healed.kind("intervention")[1]["text"] == (
        "the update of step 5 was skipped: `x` holds NaN or an infinity in sample 4 of the batch"
    )
    assert healed.kind("guest-error") == []


MOST_BAD = (
    BEGIN
    + """
x[16:, 2] = np.nan
model = dense()
model.compile("sgd", crossentropy)
fit("nan", model, x, y)
end("nan", model, model.fit(x, y, batch_size=4, epochs=12, shuffle=False, verbose=0))
"""
    + END
)


@pytest.mark.parametrize("parts", ["", "2"])
def test_where_most_updates_are_bad_it_gives_up_and_they_are_made(tmp_path: Path, parts: str) -> None:
    """In parts or not: the run is not kept going as if something were learnt."""
    done = run(tmp_path, MOST_BAD, HOLTER_HEAL="1", HOLTER_SPLIT=parts)

    assert any(value != value for value in said(done)["nan"]["weights"])
    (event,) = done.kind("declined")
    assert event["because"].endswith("`x` holds NaN or an infinity in sample 0 of the batch")
    assert done.kind("guest-error") == []


def test_without_heal_nothing_is_held_back_or_split(tmp_path: Path) -> None:
    plain = run(tmp_path, NAN, KIND="nan", HOLTER_SPLIT="4")

    weights = said(plain)["nan"]["weights"]
    assert any(value != value for value in weights)
    assert not plain.kind("intervention")


RATE = (
    BEGIN
    + """
# 18 is the steepest slope of this loss: at a rate above 2 / 18 each step leaves further from the minimum.
keras.utils.set_random_seed(1)
features = 3 * rng.normal(size=(512, 8)).astype("float32")
price = (features @ np.arange(8) + 5).astype("float32")[:, None]
model = keras.Sequential([keras.Input((8,)), layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.4), "mse")
history = model.fit(features, price, batch_size=32, epochs=12, verbose=0)
print(history.history["loss"][-1])
"""
)


def test_a_loss_that_runs_away_is_let_go_with_its_cure(tmp_path: Path) -> None:
    """As in PyTorch: the rate is the user's to choose, and the run comes to its true ending."""
    done = run(tmp_path, RATE, HOLTER_HEAL="1")

    (event,) = done.kind("declined")
    assert event["act"] == "hold-update"
    assert event["because"].endswith("lower the learning rate of 0.4, or clip the gradients")
    assert done.out.strip() == "nan"
