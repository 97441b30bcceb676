"""TensorFlow loops that the user writes, under the agent: tapes, `tf.function`s and datasets, in real small runs."""

import re

import pytest

from holter.record import ring_format as f
from tests.needs import needs

from .agent_run import Run, run

needs("tensorflow")
pytestmark = pytest.mark.tensorflow

LOOPS = """
import keras, tensorflow as tf, time
keras.utils.set_random_seed(7)
x = tf.random.normal((64, 4))
y = tf.reduce_sum(x, axis=1, keepdims=True)
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)

def build():
    parts = [keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(1)]
    return keras.Sequential(parts)

model, optimizer = build(), keras.optimizers.Adam(0.01)

def show(loss):
    print(repr(float(loss)))
    time.sleep(0.025)  # longer than a slot of the ring: each step has its own

def train(a, b):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(a, training=True) - b) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss

for epoch in range(3):
    for a, b in data:
        show(train(a, b))                           # 12 eager steps

del optimizer
model, optimizer = build(), keras.optimizers.SGD(0.01)
optimizer.build(model.trainable_variables)

@tf.function
def step(a, b):
    if tf.reduce_sum(a) > 1e9:
        a = a * 0.0
    return {"loss": train(a, b), "size": tf.shape(a)[0]}

for epoch in range(2):
    for a, b in data:
        show(step(a, b)["loss"])                    # 8 traced steps
for size in (3, 5):
    show(step(x[:size], y[:size])["loss"])          # 2 more, each traced anew
print(step.experimental_get_tracing_count())

def generate():
    for part in range(3):
        yield model(x[:4]).numpy()                            # in a thread of TensorFlow's own

for part in tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec((4, 1))):
    print(part.shape)
"""

# no optimizer anywhere: what it does is work, and no training that could be counted
MATMUL = """
import tensorflow as tf
inputs = tf.constant([[1.0, 2.0], [3.0, 4.0]])

@tf.function(jit_compile=True)
def work(x):
    return tf.matmul(x, tf.transpose(x))

for i in range(10):
    outputs = work(inputs)
    print(i, float(tf.reduce_sum(outputs)))
"""

BY_HAND = """
import tensorflow as tf
x = tf.constant([1.0, 2.0, 3.0])
w = tf.Variable(0.0)

@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((w * x - x) ** 2)
    w.assign_sub(0.01 * tape.gradient(loss, w))
    return loss

for i in range(5):
    print(repr(float(step())))
for i in range(4):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((w * x - x) ** 2)
    w.assign_sub(0.01 * tape.gradient(loss, w))
functions = []
for i in range(6):
    @tf.function
    def made_anew(a):
        return a + 1
    functions.append(made_anew)
    made_anew(x)
@tf.function
def bad(a):
    return tf.linalg.inv(a)
bad(tf.zeros((2, 2)))
"""


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("loops"), LOOPS)


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("by_hand"), BY_HAND)


def losses(out: str) -> list[float]:
    return [float(line) for line in out.splitlines() if re.fullmatch(r"\d+\.\d+(e-?\d+)?", line)]


def test_training_is_untouched(loops: Run, tmp_path) -> None:
    """Losses to the last bit, the number of traces and all output are the same with and without the agent."""
    plain = run(tmp_path, LOOPS, agent=False)
    assert plain.code == 0, plain.err

    assert plain.out == loops.out
    assert plain.err == loops.err


def test_no_error_of_ours(loops: Run) -> None:
    """The guard had nothing to catch."""
    assert loops.kind("guest-error") == []


def test_eager_and_traced_steps_count_once(loops: Run) -> None:
    """Each pass of a loop with a tape is a step, and each call of a function that trains is one."""
    assert loops.words is not None

    assert loops.words[f.W_STEP] == 12 + 8 + 2


def test_losses_are_the_tape_s_and_the_function_s(loops: Run) -> None:
    """The loss of each step is the tape's target, or `loss` of what a step function returned."""
    assert losses(loops.out) == [slot.loss for slot in loops.slots]


def test_phases_of_an_eager_step(loops: Run) -> None:
    """Data, forward, backward and optimizer are told apart, and tracing is no part of them."""
    eager, traced = loops.slot(3).spent, loops.slot(13).spent

    assert min(eager[name] for name in ("data", "forward", "backward", "optimizer")) > 0
    assert eager["compile"] == 0
    assert traced["compile"] > loops.slot(15).spent["forward"]


def test_epochs_plan_and_batch(loops: Run) -> None:
    """A pass over a dataset is an epoch, and its length with the `range` around it is the plan."""
    assert {16} == {slot.batch for slot in loops.slots[:20]}
    assert [slot.epoch for slot in loops.slots[:12]] == [1] * 4 + [2] * 4 + [3] * 4
    assert {"steps": 12, "epochs": 3, "steps_per_epoch": 4}.items() <= loops.kind("plan")[1].items()


def test_a_range_beside_a_dataset_counts_steps() -> None:
    """`zip(range(steps), dataset)` is the loop over the dataset itself: what a pass has does not multiply it."""
    from types import SimpleNamespace

    from holter.agent.keras.observe.adapter_tensorflow import LoopPlan

    reports: list[dict[str, object]] = []
    beat = SimpleNamespace(steps=0, plan=lambda **_numbers: None, new_epoch=lambda _epoch: None)
    loop = SimpleNamespace(
        beat=beat, rarely=[], in_fit=False, say=lambda _kind, **fields: reports.append(fields)
    )  # fmt: skip
    plan, total = LoopPlan(loop), 20
    plan.from_dataset, plan.epoch = True, 1
    for beat.steps, _batch in zip(range(1, total + 1), "abcdef"):  # noqa: B905
        plan.look()
    plan.pass_ended()

    assert [(one["steps"], one["epochs"], one["steps_per_epoch"]) for one in reports] == [(20, 0, 0), (20, 0, 6)]


def test_each_trace_is_told(loops: Run) -> None:
    """A function that is traced again for new shapes is told with its line and how often."""
    traces = [e for e in loops.kind("trace") if e["name"] == "step"]
    lines = LOOPS.splitlines()

    assert [e["count"] for e in traces] == [1, 2, 3]
    assert "@tf.function" in lines[traces[0]["line"] - 1]


def test_work_without_training_is_alive(tmp_path) -> None:
    """A loop that only calls a function takes no step, but shows that it goes on."""
    done = run(tmp_path, MATMUL)
    assert done.code == 0, done.err
    assert done.words is not None

    assert done.words[f.W_STEP] == 0
    assert done.words[f.W_ACTIVITY] > 0


def test_updates_by_hand_are_steps(by_hand: Run) -> None:
    """Without any optimizer, a function that writes variables from gradients steps, and so does a bare tape."""
    assert by_hand.words is not None

    assert by_hand.words[f.W_STEP] == 5 + 4


def test_functions_made_in_a_loop_are_counted(by_hand: Run) -> None:
    """Functions that a loop makes anew are counted on their line, and so are their traces."""
    made = [e for e in by_hand.kind("made") if e["what"] == "function"]
    traces = [e["count"] for e in by_hand.kind("trace") if e["name"] == "made_anew"]

    assert {"Function"} == {e["name"] for e in made}
    assert traces[-1] == 6


def test_error_of_a_graph_shows_no_line_of_ours(by_hand: Run) -> None:
    """Neither the traceback nor the stack of the failed operation names a file of the agent."""
    assert by_hand.code == 1

    assert "Detected at node MatrixInverse" in by_hand.err
    assert "holter" not in by_hand.err


def test_import_alone_makes_no_ring(tmp_path) -> None:
    """A script that uses TensorFlow for a little arithmetic is no training."""
    done = run(tmp_path, "import tensorflow as tf\nprint(float(tf.reduce_sum(tf.ones((2, 2)))))\n")

    assert done.out == "4.0\n"
    assert done.words is None
    assert "trainer" not in {e["role"] for e in done.kind("guest")}
