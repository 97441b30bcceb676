"""Real runs that trace, compile or loop themselves to a crawl, each named with its line, and one that only warms up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.endings.ward import Case, as_text
from tests.needs import needs

TENSORFLOW = """
import time
import keras
import tensorflow as tf

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(0.01)
optimizer.build(model.trainable_variables)


@tf.function
def train_step(x, y, rate):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2) * rate
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


x, y = tf.random.normal((32, 8)), tf.random.normal((32, 1))
began, step = time.monotonic(), 0
"""

WARM_UP = (
    TENSORFLOW
    + """
rate = tf.constant(1.0)
while time.monotonic() - began < 12 or step < 30:
    n = (32, 32, 32, 16, 7)[step % 5]
    train_step(x[:n], y[:n], rate)
    time.sleep(0.03)
    step += 1
"""
)

UNDER_XLA = """
import time
import keras
import numpy as np

rng = np.random.default_rng(0)
model = keras.Sequential([keras.Input((None, 8)), keras.layers.GRU(16), keras.layers.Dense(1)])
model.compile("adam", "mse", jit_compile=True)  # the line
began, step = time.monotonic(), 0
while time.monotonic() - began < 4 or step < 9:
    x = rng.normal(size=(16, LENGTH, 8)).astype("float32")
    model.train_on_batch(x, x.mean((1, 2))[:, None])
    step += 1
"""

MADE_ANEW = """
import time
import torch

torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
began, step = time.monotonic(), 0
while time.monotonic() - began < 5 or step < 30:
    x = torch.randn(32, 8)
    traced = torch.jit.trace(model, x)  # the line
    loss = traced(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
"""


@pytest.mark.tensorflow
def test_a_warm_up_is_not_named(case: Callable[..., Case]) -> None:
    """Three batch sizes; a number that changes, which is named, is a patient of tests/cures."""
    needs("tensorflow")
    well = case(WARM_UP).run()

    causes = [one["cause"] for one in well.verdict()["findings"]]
    assert not [cause for cause in causes if cause.startswith(("recompile", "overhead"))], as_text(well)


@pytest.mark.tensorflow
def test_ever_new_lengths_under_xla_are_named_and_a_few_are_not(case: Callable[..., Case]) -> None:
    """The same model, once with any length up to 200 and once with five buckets."""
    needs("tensorflow")
    sick = case(UNDER_XLA.replace("LENGTH", "int(rng.integers(10, 200))")).start()
    well = case(UNDER_XLA.replace("LENGTH", "(20, 40, 60, 80, 100)[step % 5]")).start()
    sick.finish()
    well.finish()

    found = sick.first()
    assert (found["cause"], found["grade"]) == ("recompile.shape", "established"), as_text(sick)
    assert found["culprit"]["line"] == sick.line("# the line")
    assert "XLA" in found["claim"]
    assert "jit_compile=False" in found["cures"][1]["how"]
    causes = [one["cause"] for one in well.verdict()["findings"]]
    assert not [cause for cause in causes if cause.startswith("recompile")], as_text(well)


@pytest.mark.torch
def test_tracing_in_the_loop_is_named(case: Callable[..., Case]) -> None:
    """On the line that has to change."""
    pytest.importorskip("torch")
    anew = case(MADE_ANEW).run()

    made = [one for one in anew.verdict()["findings"] if one["cause"] == "recompile.closure"]
    assert made, as_text(anew)
    assert made[0]["culprit"]["line"] == anew.line("# the line")
