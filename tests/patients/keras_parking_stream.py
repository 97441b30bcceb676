"""Parking occupancy from a stream of camera summaries."""

import keras
import numpy as np

BATCH = 32
rng = np.random.default_rng(36)
cameras = rng.normal(size=(26_000, 30)).astype("float32")
occupied = (cameras[:, :5].sum(axis=1) > 0).astype("float32")


def stream():
    for start in range(0, len(cameras) - BATCH, BATCH):
        yield cameras[start : start + BATCH], occupied[start : start + BATCH, None]


model = keras.Sequential(
    [
        keras.Input((30,)),
        keras.layers.Dense(256, activation="relu"),
        keras.layers.Dense(256, activation="relu"),
        keras.layers.Dense(256, activation="relu"),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
model.fit(stream(), steps_per_epoch=250, epochs=20, verbose=2)
model.save_weights("parking.weights.h5")
print("saved")
