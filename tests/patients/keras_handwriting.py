"""Handwritten symbol classifier for small devices."""

import keras
import numpy as np

keras.config.set_dtype_policy("float16")

rng = np.random.default_rng(28)
strokes = rng.random((8, 28, 28, 1))
symbols = rng.integers(0, 8, 6000)
pages = (strokes[symbols] + 0.4 * rng.normal(size=(6000, 28, 28, 1))).astype("float16") * 255

model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(8),
    ]
)
model.compile(
    optimizer=keras.optimizers.Adam(1e-3),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
model.fit(pages, symbols, batch_size=64, epochs=4, verbose=2)
