"""What the armed reflexes cost a step of Keras' fit in calm: switched on and off between short calls in one process.

Run under the agent with healing on:
    HOLTER_HEAL=1 HOLTER_AGENT_DIR=$(mktemp -d) PYTHONPATH=src/holter/agent/inject \\
        python bench/heal_nan_keras.py KIND
KIND is small, wide or conv. Prints one line of JSON.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import tensorflow as tf

KIND = sys.argv[1] if len(sys.argv) > 1 else "wide"
# inputs, layers, steps in a block, blocks
KINDS = {
    "small": ((64,), [keras.layers.Dense(64, activation="relu") for _ in range(3)], 200, 80),
    "wide": ((2048,), [keras.layers.Dense(2048, activation="relu") for _ in range(3)], 16, 60),
    "conv": (
        (32, 32, 3),
        [keras.layers.Conv2D(32, 3, activation="relu") for _ in range(2)] + [keras.layers.GlobalAveragePooling2D()],
        32,
        60,
    ),
}


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(0)
    shape, layers, block, blocks = KINDS[KIND]
    model = keras.Sequential([keras.Input(shape), *layers, keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    data = tf.data.Dataset.from_tensors((tf.random.normal((32, *shape)), tf.random.normal((32, 1)))).repeat()
    model.fit(data, steps_per_epoch=40, epochs=1, verbose=0)
    healer = next((one for one in gc.get_objects() if type(one).__name__ == "Healer"), None)
    assert healer is not None, "the reflex is not armed"
    times: dict[int, list[float]] = {0: [], 1: []}
    for number in range(-4, blocks):
        way = number % 2
        healer.loop.healer = healer if way else None
        begun = time.perf_counter()
        model.fit(data, steps_per_epoch=block, epochs=1, verbose=0)
        if number >= 0:
            times[way].append((time.perf_counter() - begun) / block)
    paired = [a - b for a, b in zip(times[1], times[0], strict=True)]
    plain = statistics.median(times[0])
    fields = {
        "kind": KIND,
        "step_us": plain * 1e6,
        "reflex_us": statistics.median(paired) * 1e6,
        "percent": 100 * statistics.median(paired) / plain,
        "mean_percent": 100 * statistics.mean(paired) / plain,
    }
    print(json.dumps({name: value if isinstance(value, str) else round(value, 2) for name, value in fields.items()}))


if __name__ == "__main__":
    main()
