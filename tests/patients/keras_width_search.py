"""Small random search over layer widths for a concrete strength regressor."""

import random

import keras
import numpy as np


def load_mixes(n=1200):
    gen = np.random.default_rng(11)
    x = gen.uniform(0, 1, size=(n, 16)).astype("float32")
    y = 40 * x[:, 0] - 12 * x[:, 1] * x[:, 2] + 5 * np.sin(6 * x[:, 3]) + gen.normal(0, 0.5, n)
    return x, y.astype("float32")[:, None]


def regressor(first, second, rate):
    inputs = keras.Input((16,))
    h = keras.layers.Dense(first, activation="gelu")(inputs)
    h = keras.layers.Dense(second, activation="gelu")(h)
    outputs = keras.layers.Dense(1)(h)
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.Adam(rate), loss="mse", metrics=["mae"])
    return model


if __name__ == "__main__":
    random.seed(3)
    keras.utils.set_random_seed(3)
    x, y = load_mixes()
    histories = []
    for trial in range(80):
        first = random.choice([768, 1024, 1280])
        second = random.choice([768, 1024, 1280])
        rate = 10 ** random.uniform(-4, -2.5)
        history = regressor(first, second, rate).fit(x, y, validation_split=0.2, epochs=2, batch_size=192, verbose=0)
        histories.append((first, second, rate, history))
        print(f"trial {trial:02d} {first}-{second} rate {rate:.5f}: val_mae {history.history['val_mae'][-1]:.3f}")
    best = min(histories, key=lambda row: row[3].history["val_mae"][-1])
    print("best", best[:3])
