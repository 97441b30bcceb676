"""Claim severity model with a check on the validation error after each epoch."""

import sys

import keras
import numpy as np


class Watch(keras.callbacks.Callback):
    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def on_epoch_end(self, epoch, logs=None):
        if logs["val_mae"] < self.limit:
            print(f"val_mae {logs['val_mae']:.3f} is good enough")
            self.model.save("claims.keras")
            sys.exit(0)


rng = np.random.default_rng(64)
claims = rng.normal(size=(20_000, 18)).astype("float32")
severity = (claims[:, :6].sum(axis=1, keepdims=True) + 0.2 * rng.normal(size=(20_000, 1))).astype("float32")

model = keras.Sequential(
    [
        keras.Input((18,)),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(1),
    ]
)
model.compile(keras.optimizers.SGD(0.0004), loss="mse", metrics=["mae"])
model.fit(claims, severity, epochs=80, batch_size=32, validation_split=0.2, callbacks=[Watch(0.24)], verbose=2)

residual = model.predict(claims, verbose=0) - severity
print("bias", float(residual.mean()))
