"""Penguin species from beak and flipper measures; trains until it no longer gets better."""

import keras
import numpy as np

rng = np.random.default_rng(101)
species = rng.integers(0, 3, 2400)
centres = rng.normal(size=(3, 6))
measures = (centres[species] + 1.1 * rng.normal(size=(2400, 6))).astype("float32")

model = keras.Sequential(
    [
        keras.Input((6,)),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(3, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
patience = keras.callbacks.EarlyStopping(monitor="val_loss", patience=20, restore_best_weights=True)
history = model.fit(
    measures, species, validation_split=0.25, epochs=500, batch_size=16, callbacks=[patience], verbose=2
)
print(f"stopped after {len(history.epoch)} epochs, best {max(history.history['val_accuracy']):.3f}")
model.save("penguins.keras")
