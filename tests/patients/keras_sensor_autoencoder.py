"""Autoencoder for factory sensors; unusual reconstructions are inspected by hand."""

import keras
import numpy as np


def sensor_readings(count=9000, channels=60):
    rng = np.random.default_rng(40)
    base = rng.normal(size=(6, channels))
    readings = rng.normal(size=(count, 6)) @ base + 0.1 * rng.normal(size=(count, channels))
    return ((readings - readings.mean(0)) / readings.std(0)).astype("float32")


def build(channels):
    encoder = [keras.layers.Dense(units, activation="selu") for units in (48, 32, 16, 6)]
    decoder = [keras.layers.Dense(units, activation="selu") for units in (16, 32, 48)]
    model = keras.Sequential([keras.Input((channels,)), *encoder, *decoder, keras.layers.Dense(channels)])
    model.compile(optimizer="nadam", loss="mse", metrics=["mae"], run_eagerly=True)
    return model


readings = sensor_readings()
autoencoder = build(readings.shape[1])
autoencoder.fit(readings, readings, epochs=3, batch_size=32, validation_split=0.1, verbose=2)
errors = np.square(autoencoder.predict(readings, verbose=0) - readings).mean(axis=1)
for row in np.argsort(errors)[-5:]:
    print(f"reading {row}: error {errors[row]:.3f}")
