"""Rent model that is refreshed month by month with new listings."""

import keras
import numpy as np

rng = np.random.default_rng(15)


def listings(month, count=512):
    flats = rng.normal(size=(count, 20)).astype("float32")
    rent = 8 + flats[:, :4].sum(axis=1) + 0.02 * month + rng.normal(0, 0.1, count)
    return flats, rent.astype("float32")[:, None]


model = keras.Sequential(
    [
        keras.Input((20,)),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(1),
    ]
)

rate = 2e-3
for month in range(32):
    flats, rent = listings(month)
    rate *= 0.98
    model.compile(optimizer=keras.optimizers.Adam(rate), loss="mse", metrics=["mae"])
    result = model.fit(flats, rent, batch_size=128, epochs=1, verbose=0)
    print(f"month {month}: mae {result.history['mae'][0]:.3f} at rate {rate:.5f}")
