import numpy as np
from tensorflow import keras

rng = np.random.default_rng(2024)


def campaign_log(n):
    """One row per campaign and day, oldest first."""
    shown = rng.poisson(400, n).astype("float32")
    new = np.arange(n) > 0.3 * n
    shown[new & (rng.random(n) < 0.002)] = 0
    clicked = rng.binomial(shown.astype(int), 0.03).astype("float32")
    bought = rng.binomial(clicked.astype(int), 0.2).astype("float32")
    spent = (shown * rng.uniform(0.001, 0.003, n)).astype("float32")
    return shown, clicked, bought, spent


def features(shown, clicked, bought, spent):
    through_rate = clicked / shown
    per_mille = spent * 1000 / np.maximum(shown, 1)
    return np.stack([np.log1p(shown), through_rate * 20, per_mille, np.log1p(spent)], axis=1).astype("float32")


shown, clicked, bought, spent = campaign_log(60_000)
x = features(shown, clicked, bought, spent)
y = bought[:, None] / 10

model = keras.Sequential([
    keras.layers.Input((4,)),
    keras.layers.Dense(128, activation="gelu"),
    keras.layers.Dense(128, activation="gelu"),
    keras.layers.Dropout(0.1),
    keras.layers.Dense(1),
])
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="huber")
model.fit(x, y, batch_size=32, epochs=6, shuffle=False, verbose=2)
model.save_weights("ratios.weights.h5")
