"""Plankton image classifier; every epoch is kept for the ensemble."""

import os

import keras
import numpy as np

folder = os.path.join(os.environ.get("PATIENT_DISK", "."), "plankton")
os.makedirs(folder, exist_ok=True)

rng = np.random.default_rng(10)
images = rng.random((2500, 40, 40, 1), dtype="float32")
taxon = rng.integers(0, 9, 2500)

model = keras.Sequential(
    [
        keras.Input((40, 40, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.MaxPooling2D(2),
        keras.layers.Flatten(),
        keras.layers.Dense(96, activation="relu"),
        keras.layers.Dense(9, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
keep = keras.callbacks.ModelCheckpoint(os.path.join(folder, "epoch{epoch:03d}.keras"), save_freq="epoch")
model.fit(images, taxon, epochs=100, batch_size=32, callbacks=[keep], verbose=2)
