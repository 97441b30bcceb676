"""Traces and compilations with what changed between them, and looks into single steps, in real small runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from holter.agent.keras.observe.traces import _Compiled
from holter.agent.torch.observe.compiles import explained
from tests.needs import needs

from .agent_run import Run, run

TENSORFLOW = """
import keras, tensorflow as tf
model = keras.Sequential([keras.Input((None, 4)), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)
optimizer.build(model.trainable_variables)

def update(x, scale):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x, training=True) ** 2) * scale
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss

@tf.function
def by_number(x, scale):
    return update(x, scale)

@tf.function
def by_shape(batch):
    return update(batch["x"], 1.0)

@tf.function
def by_object(x, helper):
    return update(x, 1.0)

class Helper:
    pass

helpers = []
x = tf.ones((8, 5, 4))
for n in range(6):
    by_number(x, n)                                       # call by number
    by_number(x, n)
for n in range(6):
    by_shape({"x": tf.ones((8, 5 + n, 4))})
for n in range(6):
    helpers.append(Helper())
    by_object(x, helpers[-1])
for n in range(6):
    anew = tf.function(lambda x: update(x, 1.0))          # made anew
    anew(x)
for n in range(3):
    model.compile("sgd", "mse")                           # compiled anew
    model.fit(tf.ones((16, 5, 4)), tf.ones((16, 1)), epochs=2, verbose=0)
for n in range(3):
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    other.compile("sgd", "mse")
    other.fit(tf.ones((16, 4)), tf.ones((16, 1)), verbose=0)   # another model each time
print(by_number.experimental_get_tracing_count(), by_shape.experimental_get_tracing_count())
"""

# Each part meets twelve lengths; what comes after it meets one.
XLA = """
import keras, numpy as np, tensorflow as tf

def small(**how):
    model = keras.Sequential([keras.Input((None, 4)), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **how)                    # compiled by Keras
    return model

def batch(length):
    return np.ones((2, length, 4), "float32"), np.ones((2, 1), "float32")

def pipeline(lengths):
    def draw():
        for length in lengths:
            yield batch(length)
    spec = tf.TensorSpec((None, None, 4)), tf.TensorSpec((None, 1))
    return tf.data.Dataset.from_generator(draw, output_signature=spec).prefetch(2)

class Workers(keras.utils.PyDataset):
    def __len__(self):
        return 12

    def __getitem__(self, n):
        return batch(5 + n)

@tf.function(jit_compile=True, reduce_retracing=True)     # under XLA
def summed(pair, scale=None):
    return tf.reduce_sum(tf.sin(pair["x"]) @ tf.ones((4, 9)))

@tf.function(reduce_retracing=True)
def around(x):
    return summed({"x": x}) * 2.0

lengths = range(5, 17)
by_hand = small(jit_compile=True)
for length in lengths:
    by_hand.train_on_batch(*batch(length))                # by hand
    by_hand.train_on_batch(*batch(length))
one_length = small(jit_compile=True)
for _ in range(24):
    one_length.train_on_batch(*batch(5))                  # one length
small(jit_compile=True).fit(pipeline(lengths), epochs=2, verbose=0)        # by pipeline
small(jit_compile=True).fit(pipeline([5] * 12), epochs=2, verbose=0)       # one length by pipeline
small(jit_compile=True).fit(Workers(workers=2), epochs=2, verbose=0)       # by workers
without = small(jit_compile=False)
for length in lengths:
    without.train_on_batch(*batch(length))                # without XLA
for length in lengths:
    summed({"x": tf.ones((64, length, 4))})               # by function
for length in lengths:
    around(tf.ones((64, length, 4)))                      # around one
print(summed.experimental_get_tracing_count(), around.experimental_get_tracing_count())
"""

TORCH = """
import torch
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.calls = net, 0

    def forward(self, x):
        self.calls += 1                                   # read here
        return self.net(x) + 0 * self.calls

def by_text(x, tag):
    return net(x) + len(tag)

def by_shape(x):
    return net(x).mean()

def step(loss):
    optimizer.zero_grad()
    loss.mean().backward()
    optimizer.step()

text = torch.compile(by_text, backend="eager")
shape = torch.compile(by_shape, backend="eager", dynamic=False)
counting = torch.compile(Counting(), backend="eager")
once = torch.compile(by_shape, backend="eager")
for n in range(12):
    step(text(torch.ones(8, 4), "x" * n))                 # call by text
    step(shape(torch.ones(8 + n, 4)))
    step(counting(torch.ones(8, 4)))
    traced = torch.jit.trace(net, torch.ones(8, 4))       # traced anew
"""

# long enough for a look into a step, which comes after two seconds
CELLS = """
import sys, time, torch
torch.set_num_threads(1)
torch.manual_seed(1)
cell, head = torch.nn.LSTMCell(4, 8), torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
began = time.monotonic()
for n in range(100000):
    x = torch.ones(4, 100, 4)
    h = c = torch.zeros(4, 8)
    for t in range(100):
        h, c = cell(x[:, t], (h, c))                      # the loop's line
    loss = head(h).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if n >= 20 and time.monotonic() - began > 5:
        break
print(sys.getprofile())
"""


def line_of(script: str, mark: str) -> int:
    return next(n for n, line in enumerate(script.splitlines(), 1) if mark in line)


def last(traced: Run, name: str, what: str = "") -> dict:
    return [e for e in traced.kind("trace") if e["name"] == name and e["what"].startswith(what)][-1]


@pytest.fixture(scope="module")
def tensorflow(tmp_path_factory: pytest.TempPathFactory) -> Run:
    needs("tensorflow")
    return run(tmp_path_factory.mktemp("tf"), TENSORFLOW)


@pytest.fixture(scope="module")
def torch(tmp_path_factory: pytest.TempPathFactory) -> Run:
    pytest.importorskip("torch")
    return run(tmp_path_factory.mktemp("torch"), TORCH)


@pytest.mark.tensorflow
def test_tensorflow_traces_as_often_as_without_us(tensorflow: Run) -> None:
    """The script runs to its end, traces what it always did, and nothing of ours went wrong."""
    assert tensorflow.code == 0, tensorflow.err
    assert tensorflow.out.split() == ["6", "6"]
    assert tensorflow.kind("guest-error") == []


@pytest.mark.tensorflow
def test_a_number_that_changes_is_told_with_its_values_and_the_call(tensorflow: Run) -> None:
    """The second call with the same number is no trace."""
    found = last(tensorflow, "by_number")

    assert found["count"] == 6
    assert found["functions"] == 1
    assert [(c["kind"], c["argument"], c["count"]) for c in found["changes"]] == [("scalar", "scale", 5)]
    assert found["changes"][0]["examples"][:2] == ["1", "2"]
    assert found["call"]["line"] == line_of(TENSORFLOW, "call by number")
    assert found["def_line"] == line_of(TENSORFLOW, "def by_number")
    assert found["seconds"] > 0


@pytest.mark.tensorflow
def test_a_shape_that_changes_is_told_by_its_place_in_the_argument(tensorflow: Run) -> None:
    """A tensor in a dict, as batches often come."""
    change = last(tensorflow, "by_shape")["changes"][0]

    assert (change["kind"], change["argument"], change["count"]) == ("shape", "batch['x']", 5)
    assert "(8, 6, 4) float32" in change["examples"]


@pytest.mark.tensorflow
def test_an_object_that_is_new_each_time_is_told(tensorflow: Run) -> None:
    """An object of the user's is traced by who it is, not by what it holds."""
    change = last(tensorflow, "by_object")["changes"][0]

    assert (change["kind"], change["argument"]) == ("closure", "helper")


@pytest.mark.tensorflow
def test_a_function_made_anew_is_told_with_the_line_that_makes_it(tensorflow: Run) -> None:
    """Six functions for one model are five too many."""
    found = last(tensorflow, "<lambda>")

    assert (found["functions"], found["owners"]) == (6, 1)
    assert found["changes"][0]["kind"] == "closure"
    assert found["maker"]["line"] == line_of(TENSORFLOW, "# made anew")


@pytest.mark.tensorflow
def test_a_model_compiled_anew_is_told_apart_from_another_model(tensorflow: Run) -> None:
    """Keras makes its function again for the same model; for another model it has to."""
    traces = [e for e in tensorflow.kind("trace") if e["what"] == "keras" and e["seconds"] > 0]
    same = [e for e in traces if e.get("maker", {}).get("line") == line_of(TENSORFLOW, "# compiled anew")][-1]
    others = [e for e in traces if e["line"] == line_of(TENSORFLOW, "# another model")][-1]

    assert (same["functions"], same["owners"]) == (3, 1)
    assert same["changes"][0]["kind"] == "closure"
    assert (others["functions"], others["owners"]) == (3, 3)
    assert others["changes"] == []


@pytest.fixture(scope="module")
def xla(tmp_path_factory: pytest.TempPathFactory) -> Run:
    needs("tensorflow")
    return run(tmp_path_factory.mktemp("xla"), XLA)


def by_xla(traced: Run, mark: str) -> list[dict]:
    """What was said of the compilations that a line of the script has caused."""
    line = line_of(XLA, mark)
    return [e for e in traced.kind("trace") if e.get("jit") and e["call"]["line"] == line]


@pytest.mark.tensorflow
def test_xla_runs_as_without_us(xla: Run) -> None:
    """The script runs to its end, traces twice for twelve lengths, and nothing of ours went wrong."""
    assert xla.code == 0, xla.err
    assert xla.out.split() == ["2", "2"]
    assert xla.kind("guest-error") == []


@pytest.mark.tensorflow
def test_a_batch_of_a_new_length_is_told_as_a_compilation_by_xla(xla: Run) -> None:
    """Two traces serve all lengths, but each is compiled for; the second batch of a length is the yardstick."""
    found = by_xla(xla, "# by hand")[-1]

    assert (found["what"], found["count"]) == ("keras", 12)
    assert [(c["kind"], c["argument"], c["count"]) for c in found["changes"]] == [("shape", "data[0]", 11)]
    assert found["changes"][0]["examples"][:2] == ["(2, 6, 4) float32", "(2, 7, 4) float32"]
    assert found["maker"]["line"] == line_of(XLA, "# compiled by Keras")
    assert 0 < found["usual"] < found["seconds"] / 12
    traced = [e for e in xla.kind("trace") if not e.get("jit") and e["line"] == line_of(XLA, "# by hand")]
    assert traced[-1]["count"] == 2


@pytest.mark.tensorflow
def test_what_fit_draws_in_its_step_is_known_by_its_bytes(xla: Run) -> None:
    """The second epoch meets no new length."""
    found = by_xla(xla, "# by pipeline")[-1]

    assert (found["what"], found["count"], found["draws"]) == ("keras", 12, True)
    assert found["changes"][0]["examples"][0] == f"{(2 * 6 * 4 + 2) * 4} bytes"


@pytest.mark.tensorflow
def test_nothing_is_said_of_batches_whose_size_cannot_be_known(xla: Run) -> None:
    """Keras turns tf.data's own counting off for what the workers of a PyDataset make."""
    assert by_xla(xla, "# by workers") == []


@pytest.mark.tensorflow
def test_a_function_under_xla_is_told_by_its_argument_also_within_another(xla: Run) -> None:
    """What is called from Python is named: the function itself, or the one around it."""
    alone, outer = by_xla(xla, "# by function")[-1], by_xla(xla, "# around one")[-1]

    assert (alone["what"], alone["name"], alone["count"]) == ("tf.function", "summed", 12)
    assert alone["changes"][0]["argument"] == "pair['x']"
    assert alone["maker"]["line"] == line_of(XLA, "# under XLA")
    assert (outer["name"], outer["count"]) == ("around", 12)


@pytest.mark.tensorflow
def test_one_length_is_compiled_for_once_and_without_xla_never(xla: Run) -> None:
    """The look-alikes: the same models, and nothing that goes on."""
    for mark in ("# one length", "# one length by pipeline"):
        compilations = by_xla(xla, mark)
        assert [e["count"] for e in compilations] == [1]
        assert compilations[0]["changes"] == []
    assert by_xla(xla, "# without XLA") == []


def test_the_shapes_that_are_remembered_have_an_end() -> None:
    """A run that meets a new shape at every step does not grow by us."""
    one = _Compiled(None, None)

    assert all(one.is_new((16, length, 8)) for length in range(10_000))
    assert not one.is_new((16, 9_999, 8))
    assert len(one.seen) < 5000


@pytest.mark.torch
def test_compilations_are_told_with_the_compilers_own_reason(torch: Run) -> None:
    """Text, shape and attribute, each up to the compiler's limit, which is told too."""
    assert torch.code == 0, torch.err
    assert torch.kind("guest-error") == []
    text, shape, counting = (last(torch, name, "torch.compile") for name in ("by_text", "by_shape", "forward"))
    assert (text["changes"][0]["kind"], text["changes"][0]["argument"]) == ("scalar", "tag")
    assert text["call"]["line"] == line_of(TORCH, "call by text")
    assert (shape["changes"][0]["kind"], shape["changes"][0]["argument"]) == ("shape", "x")
    assert (counting["changes"][0]["kind"], counting["changes"][0]["argument"]) == ("scalar", "self.calls")
    assert counting["use"]["line"] == line_of(TORCH, "# read here")
    assert text["limit"] >= 5
    assert counting["limit"] >= 5


@pytest.mark.torch
def test_a_model_traced_in_the_loop_is_counted_on_its_line(torch: Run) -> None:
    """torch.jit.trace gives a new function each time by its nature."""
    found = last(torch, "trace", "torch.jit.trace")

    assert found["count"] == 12
    assert "TracerWarning" not in torch.err
    assert found["line"] == line_of(TORCH, "# traced anew")


@pytest.mark.torch
def test_a_look_into_a_step_counts_its_nodes_and_its_lines(tmp_path: Path) -> None:
    """A loop of LSTM cells shows as its graph and as the line that is called a hundred times."""
    done = run(tmp_path, CELLS)

    assert done.code == 0, done.err
    assert done.out.split() == ["None"]
    assert done.kind("guest-error") == []
    look = done.kind("anatomy")[0]
    busiest = look["lines"][0]
    assert look["nodes"] >= 1000
    assert 0 < look["elements"] <= 32
    assert busiest["line"] == line_of(CELLS, "# the loop's line")
    assert busiest["calls"] >= 100 * look["steps"]


@pytest.mark.torch
def test_another_profiler_is_left_alone(tmp_path: Path) -> None:
    """A script that profiles itself keeps its hook, and no look is taken."""
    script = CELLS.replace("began = ", "def mine(*_): pass\nsys.setprofile(mine)\nbegan = ")
    script = script.replace("print(sys.getprofile())", "print(sys.getprofile() is mine)")

    done = run(tmp_path, script)

    assert done.out.split() == ["True"]
    assert done.kind("anatomy") == []


# The words of the guards of PyTorch 2.2 to 2.13.
@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("0/0: tensor 'x' size mismatch at index 0. expected 8, actual 9", ("shape", "x", "9")),
        ("tensor 'L['x']' size mismatch at index 0. expected 8, actual 9", ("shape", "x", "9")),
        ("0/1: tensor 'y' dtype mismatch. expected Float, actual Double", ("shape", "y", "Double")),
        ("L['n'] == 3                                  # y = x * n  # t.py:7 in f", ("scalar", "n", "3")),
        ("0/2: self.calls == 2      # self.calls += 1  # r/t.py:7 in forward", ("scalar", "self.calls", "2")),
        ("0/0: tag == 'step-0'   # t.py:3 in named", ("scalar", "tag", "'step-0'")),
        ("___check_obj_id(L['fn'], 139881)  # t.py:4 in f", ("closure", "fn", "")),
        ("0/0: BACKEND_MATCH failure: torch.compile detected different backend callables.", ("closure", "", "")),
        ("L['x'].size()[0] == 8   # t.py:4 in f", ("shape", "x", "")),
    ],
)
def test_the_compilers_reasons_are_understood(reason: str, expected: tuple[str, str, str]) -> None:
    """Each release words its guards in its own way."""
    assert explained(reason) == expected
