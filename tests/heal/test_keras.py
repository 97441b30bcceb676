"""Keras on TensorFlow under --heal: a batch in parts has the same update and metrics; what is no number is left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.beacon.guest_run import Run, run
from tests.endings.conftest import memory_cgroup  # noqa: F401 - a fixture
from tests.endings.ward import Case
from tests.heal.tight_keras import tight

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

pytestmark = pytest.mark.tensorflow

BEGIN = """
import json, os
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

EXACT = (
    BEGIN
    + """
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
    + END
)


def three_ways(folder: Path, script: str) -> dict[str, Run]:
    """The same script without healing, with it in calm, and with every batch in four parts."""
    return {
        "plain": run(folder / "plain", script),
        "calm": run(folder / "calm", script, HOLTER_HEAL="safe"),
        "split": run(folder / "split", script, HOLTER_HEAL="safe", HOLTER_SPLIT="4"),
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return three_ways(tmp_path_factory.mktemp("exact"), EXACT)


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


@pytest.mark.parametrize("name", ["weights", "compiled", "masks", "outputs", "sum", "batch"])
def test_weights_and_metrics_are_those_of_whole_batches_with_an_uneven_last_one(
    runs: dict[str, Run], name: str
) -> None:
    assert_same(said(runs["split"])[name], said(runs["plain"])[name])


def test_the_split_says_what_it_keeps(runs: dict[str, Run]) -> None:
    acts = runs["split"].kind("intervention")

    assert acts[0]["act"] == "split-batch"
    assert acts[0]["text"] == "the batch of 16 would not fit: it is run in 4 parts of up to 4"
    assert {act["keeps"] for act in acts} == {"exact"}
    assert runs["split"].kind("declined") + runs["split"].kind("guest-error") == []


def test_in_calm_nothing_is_done_and_nothing_differs(runs: dict[str, Run]) -> None:
    assert said(runs["calm"]) == said(runs["plain"])
    assert runs["calm"].kind("intervention") + runs["calm"].kind("guest-error") == []
    assert runs["calm"].slots[-1].step == runs["plain"].slots[-1].step > 0


DRAWN = (
    BEGIN
    + """
def drawn(model):
    return getattr(model.train_function, "drawing", None) is not None


model = dense(layers.BatchNormalization(), layers.Dropout(0.3))
model.compile("adam", crossentropy, metrics=["accuracy"])
end("long", model, model.fit(x, y, batch_size=16, epochs=6, shuffle=False, verbose=0))
texts = tf.data.Dataset.from_generator(
    lambda: ((word[: 3 + n % 5], y[n]) for n, word in enumerate(words)),
    output_signature=(tf.TensorSpec((None,), tf.int64), tf.TensorSpec((), tf.int64)),
)
reader = keras.Sequential([layers.Embedding(9, 4), layers.GlobalAveragePooling1D(), layers.Dense(3)])
reader.compile("adam", crossentropy)
texts = texts.padded_batch(8).apply(tf.data.experimental.assert_cardinality(6))
end("texts", reader, reader.fit(texts, epochs=4, verbose=0))
told["drawn"] = [drawn(model), drawn(reader)]
"""
    + END
)


def test_batches_of_one_kind_are_drawn_within_the_step_again_and_nothing_differs(tmp_path: Path) -> None:
    """Texts of any length are looked at first: the next one may be longer than all before."""
    healed = run(tmp_path / "healed", DRAWN, HOLTER_HEAL="safe")
    plain = run(tmp_path / "plain", DRAWN, guest=False)

    assert said(healed)["drawn"] == [True, False]
    assert {**said(healed), "drawn": None} == {**said(plain), "drawn": None}


TIGHT = (
    BEGIN
    + tight(5)
    + """
model = dense(Tight())
model.compile("adam", crossentropy, metrics=["accuracy"])
fit("weights", model, x, y, sample_weight=w)
told["batch"] = [float(value) for value in model.train_on_batch(x[:9], y[:9])]
"""
    + END
)


def test_a_real_resource_exhausted_error_loses_no_step(runs: dict[str, Run], tmp_path: Path) -> None:
    tight, wide = run(tmp_path, TIGHT, HOLTER_HEAL="safe"), said(runs["plain"])

    assert_same(said(tight), {"weights": wide["weights"], "batch": wide["batch"]})
    (act,) = tight.kind("intervention")
    assert (act["step"], act["keeps"], act["batch"], act["rows"]) == (1, "exact", 16, 4)
    assert act["text"] == "the batch of 16 did not fit: it is run in 4 parts of up to 4"
    assert tight.slots[-1].step == 7


def test_a_batch_the_kernel_would_kill_for_is_split_before_its_first_step(
    tmp_path: Path,
    memory_cgroup: Callable[[int], Callable[[], None]],  # noqa: F811
) -> None:
    leaves = (Path(__file__).parents[1] / "patients" / "keras_leaf_photos.py").read_text()
    case = Case(tmp_path, leaves.replace("range(4)", "range(1)")).start(
        options=["--heal"], before=memory_cgroup(1500 << 20)
    )

    assert case.finish().code == 0, case.err
    acts = case.verdict()["interventions"]
    assert len(acts) == 1, acts
    act = acts[0]
    assert (act["act"], act["keeps"], act["step"]) == ("split-batch", "exact", 1)
    assert act["text"].startswith("the batch of 512 would take ")


OWN = (
    BEGIN
    + """
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
    + END
)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Steps of the user's own."""
    return three_ways(tmp_path_factory.mktemp("own"), OWN)


@pytest.mark.parametrize("name", ["mean", "rows", "compiled"])
def test_a_step_of_ones_own_has_the_same_update_in_parts(own: dict[str, Run], name: str) -> None:
    """Its gradients are caught on their way to the optimizer, which is called once; what it tells stays true."""
    assert_same(said(own["split"])[name], said(own["plain"])[name])


def test_a_step_of_ones_own_that_runs_out_of_memory_loses_no_step(own: dict[str, Run], tmp_path: Path) -> None:
    """A real error of TensorFlow's: the same batch again, in parts."""
    begin, end = OWN.index("for name, model, at in"), TIGHT.index("model = dense(Tight())")
    tight = OWN[:begin] + TIGHT[TIGHT.index("class Tight") : end]
    tight += OWN[begin:].replace("Own(), x)", "Own(Tight()), x)", 1).replace("Summed(), x", "Own(), x")
    done = run(tmp_path, tight, HOLTER_HEAL="safe")

    assert_same(said(done)["mean"], said(own["plain"])["mean"])
    act = done.kind("intervention")[0]
    assert (act["step"], act["keeps"], act["text"]) == (
        1, "exact", "the batch of 16 did not fit: it is run in 4 parts of up to 4",
    )  # fmt: skip


@pytest.mark.parametrize("parts", ["", "4"], ids=["whole", "in parts"])
def test_an_update_of_a_step_of_ones_own_that_is_no_number_is_left_out(tmp_path: Path, parts: str) -> None:
    """The weights, the count of updates and the mean loss are those without the bad batch."""
    begin = OWN.index("for name, model, at in")
    script = (
        OWN[:begin]
        + """
bad = x[:32].copy()
bad[20, 1] = np.nan
for name, at, rows in [("with", bad, 32), ("without", x, 16)]:
    model = Own()
    model.compile(keras.optimizers.Adam(1e-2))
    end(name, model, model.fit(at[:rows], y[:rows], batch_size=16, epochs=2, shuffle=False, verbose=0))
    del told[name]["history"]["twice"]
"""
    )
    done = run(tmp_path, script + END, HOLTER_HEAL="safe", HOLTER_SPLIT=parts)

    assert_same(said(done)["with"], said(done)["without"])
    acts = [act for act in done.kind("intervention") if act["act"] == "hold-update"]
    assert [act["text"] for act in acts] == [
        f"the update of step {step} was left out: `x` holds NaN or an infinity in sample 4 of the batch"
        for step in (2, 4)
    ]


def test_a_step_of_ones_own_is_left_as_it_is_in_calm(own: dict[str, Run]) -> None:
    assert said(own["calm"]) == said(own["plain"])
    assert not own["calm"].kind("intervention")
    assert not own["calm"].kind("declined")


def test_what_a_step_of_ones_own_keeps_in_parts_is_seen_in_its_gradients(own: dict[str, Run]) -> None:
    """Exact, equivalent with the reason, or declined: where it sums or compares samples, or makes several updates."""
    keeps = [(act["keeps"], act["because"]) for act in own["split"].kind("intervention")]
    assert keeps[:1] == [("exact", "")]
    assert ("equivalent", "random numbers are drawn anew for each part") in keeps
    assert ("equivalent", "BatchNormalization takes its statistics from each part") in keeps
    reasons = {event["model"]: event["because"] for event in own["split"].kind("declined")}
    assert reasons.keys() == {"Summed", "Contrast", "Twice"}
    assert reasons["Summed"] == "its loss is a sum over the batch: what it tells of it would be that of a part"
    assert reasons["Contrast"].startswith("the gradients of two halves do not make those of the whole")
    assert reasons["Twice"] == "its step makes 2 updates, and parts make one"
    assert said(own["split"])["twice"] == said(own["plain"])["twice"]


DECLINED = (
    BEGIN
    + """
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
model = dense(layers.BatchNormalization(), layers.Dropout(0.3))
model.compile("sgd", crossentropy)
fit("norm", model, x, y)
"""
    + END
)


@pytest.fixture(scope="module")
def declined(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("declined"), DECLINED, HOLTER_HEAL="safe", HOLTER_SPLIT="4")


def test_what_cannot_be_split_is_run_whole_and_said_with_the_reason(declined: Run) -> None:
    assert [ended["updates"] for ended in said(declined).values()] == [6] * 4
    reasons = [event["because"] for event in declined.kind("declined")]
    assert reasons[0] == "the model's output for a sample depends on the others of its batch"
    assert reasons[1].startswith("its loss is not made of the losses of its samples")
    assert reasons[2] == "its loss is a sum, to which each part would add the regularization again"
    assert len(reasons) == 3


def test_batch_statistics_are_only_equivalent(declined: Run) -> None:
    (act,) = declined.kind("intervention")
    assert (act["keeps"], act["because"]) == ("equivalent", "BatchNormalization takes its statistics from each part")


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


def test_a_batch_with_a_nan_is_left_out_as_if_it_had_not_been_there(tmp_path: Path) -> None:
    healed = run(tmp_path / "healed", NAN, KIND="nan", HOLTER_HEAL="safe")
    skipped = run(tmp_path / "skipped", NAN, KIND="skipped")

    assert said(healed)["nan"] == said(skipped)["nan"]
    assert said(healed)["batch"] == pytest.approx(2, abs=2)  # a number: the loss of the batch before
    acts = healed.kind("intervention")
    assert [(act["act"], act["keeps"], act["step"]) for act in acts] == [
        ("hold-update", "equivalent", step) for step in (2, 5, 8)
    ]
    assert acts[0]["text"] == (
        "the update of step 2 was left out: `x` holds NaN or an infinity in sample 4 of the batch"
    )


def test_without_heal_nothing_is_held_back_or_split(tmp_path: Path) -> None:
    plain = run(tmp_path, NAN, KIND="nan", HOLTER_SPLIT="4")

    weights = said(plain)["nan"]["weights"]
    assert any(value != value for value in weights)
    assert not plain.kind("intervention")


LARGE = (
    BEGIN
    + """
@tf.custom_gradient
def spoilt(kernel, at):
    return tf.identity(kernel), lambda slope: (tf.where(tf.equal(at, 71), slope * np.nan, slope), None)


class Spoilt(layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 200))
        self.calls = tf.Variable(0, trainable=False)

    def call(self, given, training=False):
        if training:
            self.calls.assign_add(1)
        return given @ spoilt(self.kernel, self.calls)


# Both at the 71st step, when only small gradients are read.
x, y = rng.normal(size=(16 * 120, 60)).astype("float32"), rng.normal(size=(16 * 120, 1)).astype("float32")
first = layers.Dense(200, activation="relu", kernel_initializer=keras.initializers.Constant(0.1))
if os.environ["KIND"] == "hidden":
    x[16 * 70 + 4, 2] = -np.inf
else:
    first = Spoilt()
model = keras.Sequential([keras.Input((60,)), first, layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.001), "mse")
model.fit(x, y, batch_size=16, shuffle=False, verbose=0)
told["good"] = all(bool(np.isfinite(weight).all()) for weight in model.get_weights())
told["loss"] = float(model.evaluate(x[16 * 70 : 16 * 71], y[16 * 70 : 16 * 71], verbose=0))
"""
    + END
)


def test_an_infinity_that_the_loss_does_not_show_is_met_in_a_large_gradient(tmp_path: Path) -> None:
    """Below zero a ReLU hides it: the loss and the biases' gradients are numbers, and the kernel's is not."""
    done = run(tmp_path, LARGE, KIND="hidden", HOLTER_HEAL="safe")

    assert said(done)["good"]
    assert 0 < said(done)["loss"] < 100
    (act,) = done.kind("intervention")
    assert (act["act"], act["step"]) == ("hold-update", 71)
    assert act["text"].endswith("`x` holds NaN or an infinity in sample 4 of the batch")


def test_a_large_gradient_that_alone_is_no_number_is_gone_back_from(tmp_path: Path) -> None:
    """Nothing else tells of it before the next loss: then the last good state is put back."""
    done = run(tmp_path, LARGE, KIND="alone", HOLTER_HEAL="safe")

    assert said(done)["good"]
    acts = [(act["act"], act["step"]) for act in done.kind("intervention")]
    assert acts == [("hold-update", 72), ("hold-update", 73), ("go-back", 74)]


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
    done = run(tmp_path, RATE, HOLTER_HEAL="safe")

    (event,) = done.kind("declined")
    assert event["act"] == "hold-update"
    assert event["because"].endswith("lower the learning rate of 0.4, or let --heal=all halve it")
    assert done.out.strip() == "nan"  # its true ending


def test_heal_all_goes_back_and_lowers_the_rate(tmp_path: Path) -> None:
    done = run(tmp_path, RATE, HOLTER_HEAL="all")

    acts = [act for act in done.kind("intervention") if act["act"] == "lower-rate"]
    assert 1 <= len(acts) <= 6
    assert {act["keeps"] for act in acts} == {"changed"}
    assert "times the learning rate" in acts[0]["text"]
    assert float(done.out) < 1
