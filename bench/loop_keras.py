"""A Keras loop (fit) whose step takes about as many milliseconds as asked; prints its median and the last loss.

loop_keras.py MILLISECONDS STEPS
"""

from __future__ import annotations

import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import numpy as np
import tensorflow as tf

milliseconds, steps = float(sys.argv[1]), int(sys.argv[2])
keras.utils.set_random_seed(0)
tf.config.threading.set_intra_op_parallelism_threads(1)
work = np.random.default_rng(0).random((192, 192), dtype=np.float32)


class Pace(keras.callbacks.Callback):
    """Fills the step up with real work, and times it."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []
        self.begun = 0.0

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:  # noqa: ARG002 - Keras' signature
        now = time.perf_counter()
        if self.begun:
            self.times.append(now - self.begun)
        self.begun = now
        until = now + milliseconds / 1e3 * 0.8
        while time.perf_counter() < until:
            work @ work


model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
data = tf.data.Dataset.from_tensors((tf.random.normal((16, 32)), tf.random.normal((16, 1)))).repeat()
pace = Pace()
history = model.fit(data, steps_per_epoch=steps, epochs=1, verbose=0, callbacks=[pace])
times = pace.times[max(5, steps // 10) :]
print(statistics.median(times), sum(times) / len(times), repr(history.history["loss"][-1]))
