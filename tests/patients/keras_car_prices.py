"""Second-hand car prices from mileage, age and extras."""

import keras
import numpy as np

keras.utils.set_random_seed(2)
rng = np.random.default_rng(33)
n = 4000
mileage = rng.uniform(0, 250, n)
age = rng.uniform(0, 15, n)
extras = rng.integers(0, 10, n)
power = rng.uniform(50, 300, n)
price = 30_000 - 60 * mileage - 900 * age + 300 * extras + 40 * power + rng.normal(0, 500, n)
features = np.stack([mileage, age, extras, power], axis=1).astype("float32")
price = (price.astype("float32") / 1000)[:, None]

model = keras.Sequential(
    [
        keras.Input((4,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(1),
    ]
)
model.compile(optimizer=keras.optimizers.SGD(learning_rate=0.05, momentum=0.9), loss="mse")
history = model.fit(features, price, epochs=60, batch_size=32, validation_split=0.1, verbose=2)
print("final loss", history.history["loss"][-1])
