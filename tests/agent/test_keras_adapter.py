"""Keras under the agent: `fit`, `evaluate`, `predict` and `train_on_batch`, in real small runs."""

import math
import re

import pytest

from holter.record import ring_format as f
from tests.needs import needs

from .agent_run import Run, run

needs("keras")
pytestmark = pytest.mark.tensorflow

HEAD = """
import keras, numpy as np, tensorflow as tf, time
keras.utils.set_random_seed(7)
rng = np.random.default_rng(7)
x = rng.random((64, 4), dtype="float32")
y = x.sum(axis=1, keepdims=True)

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.025)  # longer than a slot of the ring: each step has its own

def build():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
"""

FIT = (
    HEAD
    + """
class Enough(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = epoch == 1

def show(history):
    print({name: [repr(v) for v in values] for name, values in history.history.items()})

model = build()
model.compile("adam", "mse")
keep = keras.callbacks.ModelCheckpoint("best.keras")
show(model.fit(x, y, batch_size=8, epochs=3, validation_split=0.25, verbose=0, callbacks=[keep, Slow()]))  # 6 x 3
show(model.fit(x, y, batch_size=8, epochs=5, verbose=0, callbacks=[Enough()]))                      # 8 x 2 of 5
patient = keras.callbacks.EarlyStopping("loss", patience=0, min_delta=1e9)
show(model.fit(x, y, batch_size=16, epochs=9, initial_epoch=4, verbose=0, callbacks=[patient]))     # 4 x 2 of 5

many = build()
many.compile("sgd", "mse", steps_per_execution=3)
show(many.fit(x, y, batch_size=8, epochs=2, verbose=0))                                             # 8 x 2

def batches():
    for start in range(0, 40, 8):
        yield x[start : start + 8], y[start : start + 8]

short = build()
short.compile("sgd", "mse")
show(short.fit(batches(), epochs=2, steps_per_epoch=4, verbose=0))                                  # 5 of 4 x 2

class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.inside = keras.Sequential([keras.layers.Dense(4)])
        self.out = keras.layers.Dense(1)

    def call(self, x):
        return self.out(self.inside(x))

    def train_step(self, data):
        a, b = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(a) - b) ** 2)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"own_loss": loss}

own = Own()
own.compile("sgd", run_eagerly=True)
show(own.fit(x, y, batch_size=16, epochs=3, verbose=0, callbacks=[Slow()]))                         # 4 x 3

for _ in range(3):
    print(repr(model.train_on_batch(x[:8], y[:8])))                                                 # 3
print(model.evaluate(x, y, verbose=0), model.test_on_batch(x, y), model.predict(x, verbose=0).sum())

again = keras.models.load_model("best.keras")
clone = keras.models.clone_model(model)
clone.set_weights(model.get_weights())
print(np.array_equal(clone(x), model(x)), again(x).shape)
"""
)


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("fit"), FIT)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("plain"), FIT, agent=False)


def test_training_is_untouched(fit: Run, plain: Run) -> None:
    """All losses, to the last bit, and every byte of output are the same with and without the agent."""
    assert plain.code == 0, plain.err

    assert plain.out == fit.out
    assert plain.err == fit.err


def test_no_error_of_ours(fit: Run) -> None:
    """The guard had nothing to catch, and both adapters are on."""
    assert fit.kind("guest-error") == []
    assert {e["framework"]: e["state"] for e in fit.kind("adapter")} == {"keras": "on", "tensorflow": "on"}


def test_each_step_counts_once(fit: Run) -> None:
    """Steps of `fit`, of several in one execution, of an own `train_step` and of `train_on_batch` add up."""
    assert fit.words is not None

    assert fit.words[f.W_STEP] == 18 + 16 + 8 + 16 + 5 + 12 + 3
    assert sum(slot.count for slot in fit.slots) == fit.words[f.W_STEP]


def test_loss_is_what_keras_shows(fit: Run) -> None:
    """The loss of an epoch's last step is the one that the history has for the epoch."""
    first = re.search(r"'loss': \['([^']+)'", fit.out)

    assert first is not None
    assert float(first[1]) == fit.slot(6).loss


def test_step_knows_batch_epoch_and_rate(fit: Run) -> None:
    """Batch size, epoch and learning rate of a step are there."""
    assert {8} == {step.batch for step in fit.slots[:18]}
    assert [step.epoch for step in fit.slots[:18]] == [1] * 6 + [2] * 6 + [3] * 6
    assert any(math.isclose(step.lr, 0.001, rel_tol=1e-5) for step in fit.slots)


def test_plans(fit: Run) -> None:
    """Each `fit` tells the step at which it will be done, counted from the start of the process."""
    plans = [(e["steps"], e["epochs"], e["steps_per_epoch"]) for e in fit.kind("plan") if e["source"] == "keras"]

    assert plans == [(18, 3, 6), (58, 5, 8), (54, 9, 4), (58, 2, 8), (66, 2, 4), (75, 3, 4)]


def test_deliberate_stop_names_the_callback(fit: Run) -> None:
    """A training that a callback ended says so, whose it was and in which epoch."""
    stops = [(e["by"], e["epoch"]) for e in fit.kind("early-stop")]

    assert stops == [("Enough", 2), ("EarlyStopping", 6)]


def test_data_that_ran_out_is_no_deliberate_stop(fit: Run) -> None:
    """A generator that ends too soon shows as steps that are missing from the plan."""
    ends = [(e["steps"], e["steps_planned"], e["stopped"]) for e in fit.kind("fit-end")]

    assert (5, 8, False) in ends
    assert ends[0] == (18, 18, False)
    assert ends[1] == (16, 40, True)


def test_phases(fit: Run) -> None:
    """Tracing, validation and checkpoints have their time, and eager steps are told apart."""
    eager = fit.slot(75).spent

    assert fit.slot(1).spent["compile"] > fit.slot(2).spent["forward"] > 0
    assert fit.slot(7).spent["validation"] > 0
    assert fit.slot(7).spent["checkpoint"] > 0
    assert fit.slot(3).spent["validation"] == 0
    assert min(eager["forward"], eager["backward"], eager["optimizer"]) > 0


def test_models_by_the_line_that_made_them(fit: Run) -> None:
    """Models are counted at the user's line, without the parts that they are made of."""
    made = {(e["name"], e["code"].split(" = ")[0]): e["made"] for e in fit.kind("made") if e["what"] == "model"}

    assert made[("Own", "own")] == 1
    assert ("Sequential", "self.inside") not in made
    assert ("Functional", "model") not in made


def test_evaluation_alone_is_no_training(tmp_path) -> None:
    """A script that only predicts and evaluates takes no step, and yet shows that it is alive."""
    script = """
    model = build()
    model.compile("sgd", "mse")
    model.predict(x, verbose=0)
    model.evaluate(x, y, verbose=0)
    for _ in range(3):
        model(x)
    """
    lines = HEAD + "\n".join(line[4:] for line in script.splitlines())
    done = run(tmp_path, lines)
    assert done.code == 0, done.err
    assert done.words is not None

    assert done.words[f.W_STEP] == 0
    assert done.words[f.W_ACTIVITY] > 0
    assert done.kind("fit-end") == []


def test_failed_fit_leaves_nothing_behind(tmp_path) -> None:
    """After a `fit` that raised, a loop of the user's own still counts, and the traceback shows no line of ours."""
    script = """
    def loss(a, b):
        tf.debugging.assert_less(a, 9.0)
        return tf.reduce_mean((a - b) ** 2)

    y[30] = 10.0
    model = build()
    model.compile("sgd", loss)
    try:
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    except tf.errors.InvalidArgumentError:
        print("broken")

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(model(x) ** 2)
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(value, variables), variables))

    for _ in range(40):
        step()
    y[30] = 1.0
    for epoch in range(2):
        for start in range(0, 64, 16):
            model.train_on_batch(x[start : start + 16], y[start : start + 16])
    model.fit(x, np.zeros((3, 1)), verbose=0)
    """
    done = run(tmp_path, HEAD + "\n".join(line[4:] for line in script.splitlines()))
    assert done.words is not None

    assert done.kind("guest-error") == []
    assert 3 + 20 + 8 <= done.words[f.W_STEP] <= 3 + 40 + 8
    assert done.out == "broken\n"
    assert "ValueError: Data cardinality" in done.err
    assert "holter" not in done.err


def test_an_error_that_leaves_fit_is_told_even_where_the_script_catches_it(tmp_path):
    """With the step it came in, and the traceback that the user would have had."""
    script = HEAD + (
        "class Breaks(keras.callbacks.Callback):\n"
        "    def on_train_batch_end(self, batch, logs=None):\n"
        "        if batch == 3:\n"
        "            raise ValueError('a bad batch')\n"
        "model = build()\n"
        "model.compile('sgd', 'mse')\n"
        "try:\n"
        "    model.fit(x, y, batch_size=8, verbose=0, callbacks=[Breaks()])\n"
        "except ValueError as error:\n"
        "    print('stopped:', error)\n"
    )
    found = run(tmp_path, script).kind("step-error")

    assert [(event["type"], event["message"]) for event in found] == [("ValueError", "a bad batch")]
    assert [frame["function"] for frame in found[0]["frames"] if frame["user"]] == ["<module>", "on_train_batch_end"]
