"""Keras and TensorFlow under --heal while nothing is wrong: every bit, count and object is that of the plain run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from holter.agent.keras.heal.micro_batch import noting
from tests.agent.agent_run import run
from tests.needs import needs

needs("tensorflow", "keras")

pytestmark = pytest.mark.tensorflow

CALM = """
import gc, hashlib, json, pickle, sys, traceback, warnings, weakref
import keras
import numpy as np
import tensorflow as tf

layers, told = keras.layers, {}
keras.utils.set_random_seed(1)
rng = np.random.default_rng(0)
x = rng.normal(size=(44, 6)).astype("float32")
y = rng.integers(0, 3, 44)
w = rng.random(44).astype("float32")
words = rng.integers(0, 9, (44, 7))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Seen(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.logs, self.traces, self.functions = [], 0, set()

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append([batch, {name: float(value).hex() for name, value in logs.items()}])
        self.functions.add(id(self.model.train_function))


@keras.saving.register_keras_serializable()
class Traced(layers.Layer):
    count = 0

    def call(self, x):
        Traced.count += 1
        return x


def dense(*between):
    keras.utils.set_random_seed(1)
    hidden = layers.Dense(16, activation="tanh", kernel_regularizer="l2")
    return keras.Sequential([keras.Input((6,)), hidden, Traced(), *between, layers.Dense(3)])


def end(name, model, history=None, seen=None, optimizer=None):
    optimizer = optimizer or model.optimizer
    state = b"".join(np.asarray(v).tobytes() for v in [*model.variables, *optimizer.variables])
    told[name] = {
        "state": hashlib.sha256(state).hexdigest(),
        "updates": int(optimizer.iterations.numpy()),
        "traces": Traced.count,
        "function": [type(model.train_function).__name__, getattr(model.train_function, "__module__", "")],
    }
    if history is not None:
        told[name]["history"] = {key: [float(v).hex() for v in values] for key, values in history.history.items()}
    if seen is not None:
        told[name]["seen"], told[name]["functions"] = seen.logs, len(seen.functions)
    keras.utils.set_random_seed(1)


def fit(name, model, *data, **options):
    seen = Seen()
    options = {"batch_size": 16, "epochs": 2, "verbose": 0, **options}
    end(name, model, model.fit(*data, callbacks=[seen], **options), seen)


def generator():
    while True:
        for at in range(0, 44, 16):
            yield x[at : at + 16], y[at : at + 16]


for name, how in [
    ("plain", {}), ("xla", {"jit_compile": True}), ("eager", {"run_eagerly": True}),
    ("several", {"steps_per_execution": 2}),
]:
    model = dense(layers.BatchNormalization(), layers.Dropout(0.3))
    model.compile("adam", loss, metrics=["accuracy"], **how)
    fit(name, model, x, y, sample_weight=w)
model.get_layer(index=0).trainable = False
model.compile("adam", loss)
fit("frozen", model, x, y)
again = pickle.loads(pickle.dumps(model))
told["config"] = [model.get_config() == again.get_config(), sorted(vars(model))]
clone = keras.models.clone_model(model)
told["clone"] = clone.count_params()

model = dense()
model.compile("adam", loss)
data = tf.data.Dataset.from_generator(
    lambda: ((x[at : at + 16], y[at : at + 16]) for at in range(0, 44, 16)),
    output_signature=(tf.TensorSpec((None, 6)), tf.TensorSpec((None,), tf.int64)),
)
fit("unknown", model, data, epochs=3, batch_size=None)  # Keras may count one update more than there are batches
model = dense()
model.compile("adam", loss)
fit("generator", model, generator(), steps_per_epoch=3, batch_size=None)
model.train_on_batch(x[:9], y[:9])
end("on batch", model)


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = layers.Dense(3)
        self.words = layers.Embedding(9, 6)

    def call(self, x, training=False):
        self.add_loss(0.01 * tf.reduce_mean(x * x))
        return {"a": self.body(x), "b": self.body(self.words(tf.zeros_like(x[:, 0], tf.int32)))}

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            found = self(x, training=True)
            value = loss(y, found["a"]) + sum(self.losses)
        gradients = tape.gradient(value, self.trainable_weights)
        self.optimizer.apply(gradients, self.trainable_weights)
        return {"loss": value, "norm": tf.linalg.global_norm([g for g in gradients if g is not None])}


keras.utils.set_random_seed(1)
model = Own()
model.compile(keras.optimizers.AdamW(0.01))
fit("own step", model, x, y)
model = dense()
model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)), loss)
fit("scaled", model, x, y)
with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
    model = dense()
    model.compile("adam", loss)
fit("strategy", model, x, y)

for name, how in [("tape", lambda f: f), ("traced tape", tf.function), ("xla tape", tf.function(jit_compile=True))]:
    model, first, second = dense(layers.Dropout(0.2)), keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.1, 0.9)
    first.build(model.trainable_variables), second.build(model.trainable_variables)

    @how
    def step(x, y):
        with tf.GradientTape(persistent=True) as tape:
            value = loss(y, model(x, training=True))
        first.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)
        second.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))
        return value

    told[name + " losses"] = [float(step(x[at : at + 11], y[at : at + 11])).hex() for at in range(0, 44, 11)]
    end(name, model, optimizer=first)
    end(name + " 2", model, optimizer=second)

# What a callback raises has the traceback that it always had, and what was fitted is gone with its last name.
class Raises(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise KeyError("mine")


model = dense()
model.compile("adam", loss)
try:
    model.fit(x, y, verbose=0, callbacks=[Raises()])
except KeyError:
    told["raised"] = traceback.format_exc()
gone = weakref.ref(model)
del model
gc.collect()
told["gone"] = gone() is None


# No method of the script's is called that it would not have been, and nothing is serialized, which may warn.
class Asked:
    def get_config(self):
        calls.append("config of " + type(self).__name__)
        return super().get_config()

    def get_build_config(self):
        calls.append("build config")
        return super().get_build_config()

    def save_own_variables(self, store):
        calls.append("own variables")
        super().save_own_variables(store)

    def save_weights(self, *args, **kwargs):
        calls.append("save")
        super().save_weights(*args, **kwargs)


class Layer(Asked, layers.Layer):
    def call(self, x):
        return x


class Model(Asked, keras.Sequential):
    pass


class Sgd(Asked, keras.optimizers.SGD):
    pass


class Data(keras.utils.PyDataset):
    shape = property(lambda self: calls.append("shape"))

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return x[:16], y[:16]


class Listed(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        frame = sys._getframe(1)
        while "callbacks" not in frame.f_locals or frame.f_code.co_name != "fit":
            frame = frame.f_back
        told["listed"] = [type(one).__name__ for one in frame.f_locals["callbacks"].callbacks]


calls = []
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    model = Model([keras.Input((6,)), Layer(), layers.Lambda(lambda x: 2 * x), layers.Dense(3)])
    model.compile(Sgd(0.1), lambda y, found: loss(y, found))
    model.fit(Data(), epochs=3, verbose=0, callbacks=[Listed()])
told["asked"], told["warned"] = calls, [str(one.message) for one in seen]

# NumPy gradients, lists, tuples and None reach an optimizer as they are.
weight, other = keras.Variable([1.0, 2.0]), keras.Variable([[3.0]])
optimizer = keras.optimizers.Adam(0.1)
optimizer.apply([np.array([0.1, 0.2], "float32"), np.ones((1, 1), "float32")], [weight, other])
optimizer.apply_gradients([(np.array([0.1, 0.2], "float32"), weight), (None, other)])
optimizer.apply((tf.constant([0.5, 0.5]), tf.ones((1, 1))))
told["by hand"] = [np.asarray(weight).tolist(), np.asarray(other).tolist(), int(optimizer.iterations)]
print(json.dumps(told))
"""


def test_in_calm_nothing_is_in_place_and_nothing_differs(tmp_path: Path) -> None:
    """Weights, moments, counts, logs, traces, the train function itself and what a model holds."""
    plain = run(tmp_path / "plain", CALM, agent=False)
    healed = run(tmp_path / "healed", CALM, HOLTER_HEAL="1", HOLTER_STATE_DISK=str(tmp_path))

    assert plain.code == healed.code == 0, plain.err + healed.err
    before, after = json.loads(plain.out.splitlines()[-1]), json.loads(healed.out.splitlines()[-1])
    for name in before:
        assert str(after[name]).replace("/healed/", "/plain/") == str(before[name]), name
    assert before["unknown"]["updates"] >= 9
    assert healed.err == plain.err
    assert healed.kind("intervention") + healed.kind("declined") + healed.kind("guest-error") == []


def test_what_a_script_has_put_on_an_optimizer_or_a_layer_is_there_after_a_trace() -> None:
    """While a step is traced ours stands in its place; then its own is back, and what was not there is gone."""
    own, bare = SimpleNamespace(apply=print), SimpleNamespace()
    noted: list[object] = []
    with noting([own, bare], noted):
        own.apply([1], [2])
        bare.apply_gradients([(3, 4)])

    assert noted == [(own, [(1, 2)]), (bare, [(3, 4)])]
    assert (vars(own), vars(bare)) == ({"apply": print}, {})
