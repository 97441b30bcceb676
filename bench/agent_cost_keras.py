"""What the agent costs a step of Keras' fit: patches switched on and off between short calls of fit in one process.

Run under the agent (bench/run.py does so). Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import tensorflow as tf
from keras.src.callbacks.callback_list import CallbackList
from tensorflow.python.eager.polymorphic_function import polymorphic_function

STEPS, BLOCKS = 40, 200


class Clock(keras.callbacks.Callback):
    """The times at which steps begin."""

    def __init__(self) -> None:
        super().__init__()
        self.at: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:  # noqa: ARG002 - Keras' signature
        self.at.append(time.perf_counter())


def patched() -> list[tuple[type, str, object, object]]:
    """What a step of fit passes through, with and without us."""
    found = []
    for owner, name in (
        (CallbackList, "on_train_batch_begin"),
        (CallbackList, "on_train_batch_end"),
        (polymorphic_function.Function, "__call__"),
    ):
        ours = owner.__dict__[name]
        plain = getattr(ours, "__wrapped__", None)
        if plain is not None:
            found.append((owner, name, ours, plain))
    return found


def main() -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    data = tf.data.Dataset.from_tensors((tf.random.normal((16, 32)), tf.random.normal((16, 1)))).repeat()
    switches = patched()
    times: dict[bool, list[float]] = {True: [], False: []}
    for block in range(-2, BLOCKS):
        on = bool(block % 2)
        for owner, name, ours, plain in switches:
            setattr(owner, name, ours if on else plain)
        clock = Clock()
        model.fit(data, steps_per_epoch=STEPS, epochs=1, verbose=0, callbacks=[clock])
        if block >= 0:
            times[on].append(statistics.median(b - a for a, b in zip(clock.at[8:], clock.at[9:], strict=False)))
    paired = [a - b for a, b in zip(times[True], times[False], strict=True)]
    print(
        json.dumps(
            {
                "patches": len(switches),
                "step_us": statistics.median(times[False]) * 1e6,
                "quartiles_us": [q * 1e6 for q in statistics.quantiles(paired, n=4)],
            }
        )
    )


if __name__ == "__main__":
    main()
