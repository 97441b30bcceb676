"""Next-hour load forecast from a year of smart-meter readings of a town."""

import keras
import numpy as np

HOURS = 24 * 60
WINDOW = 48


def read_meter(number):
    """One household's readings as a table of lag windows."""
    rng = np.random.default_rng(number)
    hours = np.arange(HOURS)
    load = 1 + 0.5 * np.sin(2 * np.pi * hours / 24 + rng.uniform(0, 3)) + 0.1 * rng.normal(size=HOURS)
    windows = np.stack([load[i : i + WINDOW] for i in range(HOURS - WINDOW)])
    return windows, load[WINDOW:]


windows, targets = [], []
for meter in range(6000):
    x, y = read_meter(meter)
    windows.append(x)
    targets.append(y)
    if meter % 250 == 0:
        print(f"read {meter} meters")
inputs = np.concatenate(windows).astype("float32")
outputs = np.concatenate(targets).astype("float32")

model = keras.Sequential([keras.Input((WINDOW,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mae")
model.fit(inputs, outputs, batch_size=1024, epochs=3, verbose=2)
