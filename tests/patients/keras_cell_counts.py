"""Counts cells under the microscope."""

import keras
import numpy as np

rng = np.random.default_rng(18)


def slides(count, side=48):
    plates = rng.normal(0, 0.05, size=(count, side, side, 1)).astype("float32")
    cells = rng.integers(0, 12, count)
    for plate, number in zip(plates, cells):
        for row, column in rng.integers(2, side - 2, (number, 2)):
            plate[row - 2 : row + 3, column - 2 : column + 3] += 0.8
    return plates, cells.astype("float32")[:, None]


plates, cells = slides(1600)
counter = keras.Sequential(
    [
        keras.Input((48, 48, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(32, activation="relu"),
        keras.layers.Dense(1),
    ]
)
counter.compile("adam", "mse", metrics=["mae"])
counter.fit(plates, cells, epochs=60, batch_size=32, validation_split=0.1, verbose=2)
counter.save("counter.keras")
