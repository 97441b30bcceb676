"""A functional Keras model with two outputs, `fit` with callbacks and a validation split."""

import keras
import numpy as np

keras.utils.set_random_seed(0)
inputs = keras.Input((32, 32, 3))
x = keras.layers.Conv2D(24, 3, activation="relu")(inputs)
x = keras.layers.MaxPooling2D()(x)
x = keras.layers.Conv2D(48, 3, activation="relu")(x)
x = keras.layers.GlobalAveragePooling2D()(x)
x = keras.layers.Dropout(0.3)(x)
model = keras.Model(inputs, [keras.layers.Dense(10, name="kind")(x), keras.layers.Dense(1, name="size")(x)])
model.compile(
    "adam",
    loss={"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "size": "mse"},
    loss_weights={"kind": 1.0, "size": 0.2},
    metrics={"kind": "accuracy"},
)
rng = np.random.default_rng(0)
images = rng.normal(size=(512, 32, 32, 3)).astype("float32")
kinds, sizes = rng.integers(0, 10, 512), rng.normal(size=(512, 1)).astype("float32")
history = model.fit(
    images, {"kind": kinds, "size": sizes}, batch_size=64, epochs=3, validation_split=0.25, verbose=0,
    callbacks=[keras.callbacks.ReduceLROnPlateau(patience=1), keras.callbacks.EarlyStopping(patience=2)],
)  # fmt: skip
for name in sorted(history.history):
    print(name, *(f"{value:.6f}" for value in history.history[name]))
print("digest", f"{sum(float(np.sum(w, dtype='float64')) for w in model.get_weights()):.6f}")
