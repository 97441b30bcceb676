"""What the armed reflex costs a loop with a GradientTape in calm: two optimizers in one process, one of them unwatched.

Run under the beacon with healing on:
    HOLTER_HEAL=safe HOLTER_GUESTS=$(mktemp -d) PYTHONPATH=src/holter/beacon/inject python bench/heal_tape_keras.py KIND
KIND is small, wide or conv; a second word, eager, leaves out tf.function. Prints one line of JSON.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import tensorflow as tf

KIND = sys.argv[1] if len(sys.argv) > 1 else "small"
EAGER = "eager" in sys.argv[2:]
# inputs, layers, steps in a block
KINDS: dict[str, tuple[tuple[int, ...], Callable[[], list[Any]], int]] = {
    "small": ((64,), lambda: [keras.layers.Dense(64, activation="relu") for _ in range(3)], 100),
    "wide": ((2048,), lambda: [keras.layers.Dense(2048, activation="relu") for _ in range(3)], 6),
    "conv": (
        (32, 32, 3),
        lambda: (
            [keras.layers.Conv2D(32, 3, activation="relu") for _ in range(2)] + [keras.layers.GlobalAveragePooling2D()]
        ),
        20,
    ),
}
BLOCKS = 60


def trainer(shape: tuple[int, ...], layers: list[Any]) -> Callable[..., Any]:
    """A step of its own, with a model of its own."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input(shape), *layers, keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam()

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step if EAGER else tf.function(step)


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    shape, layers, block = KINDS[KIND]
    x, y = tf.random.normal((32, *shape)), tf.random.normal((32, 1))
    (hold,) = [one for one in gc.get_objects() if type(one).__name__ == "TapeHold"]
    steps = []
    for off in (True, False):
        hold.off = off
        steps.append(trainer(shape, layers()))
        for _ in range(5):
            steps[-1](x, y)
    times: dict[int, list[float]] = {0: [], 1: []}
    for number in range(-4, 2 * BLOCKS):
        way = number % 2
        hold.off = EAGER and not way
        begun = time.perf_counter()
        for _ in range(block):
            float(steps[way](x, y))
        if number >= 0:
            times[way].append((time.perf_counter() - begun) / block)
    paired = [a - b for a, b in zip(times[1], times[0], strict=True)]
    plain = statistics.median(times[0])
    told = {
        "kind": KIND + (" eager" if EAGER else ""),
        "step_us": plain * 1e6,
        "reflex_us": statistics.median(paired) * 1e6,
        "percent": 100 * statistics.median(paired) / plain,
    }
    print(json.dumps({name: value if isinstance(value, str) else round(value, 2) for name, value in told.items()}))


if __name__ == "__main__":
    main()
