"""Clothing classifier in mixed precision."""

import keras
import numpy as np

keras.mixed_precision.set_global_policy("mixed_float16")

rng = np.random.default_rng(107)
kinds = rng.integers(0, 6, 3000)
shapes = rng.normal(size=(6, 24, 24, 1))
clothes = (shapes[kinds] + 0.8 * rng.normal(size=(3000, 24, 24, 1))).astype("float32")

model = keras.Sequential(
    [
        keras.Input((24, 24, 1)),
        keras.layers.Conv2D(8, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(6, dtype="float32", activation="softmax"),
    ]
)
optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(1e-3), initial_scale=2.0**20, dynamic_growth_steps=100)
model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(clothes, kinds, epochs=8, batch_size=50, validation_split=0.1, verbose=2)
