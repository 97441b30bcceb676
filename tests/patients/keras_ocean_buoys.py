"""Wave height from buoy series, checked each epoch on a long hold-out of several years."""

import keras
import numpy as np

rng = np.random.default_rng(106)


def series(count):
    t = np.arange(40)
    swell = rng.uniform(0.1, 0.6, (count, 1))
    waves = np.sin(t * swell) + 0.2 * rng.normal(size=(count, 40))
    return waves.astype("float32")[..., None], swell.astype("float32")


train_x, train_y = series(1500)
check_x, check_y = series(16_000)

model = keras.Sequential([keras.Input((40, 1)), keras.layers.LSTM(48), keras.layers.Dense(1)])
model.compile("adam", "mse", metrics=["mae"])
model.fit(train_x, train_y, epochs=4, batch_size=50, validation_data=(check_x, check_y), verbose=2)

heights = model.predict(check_x[:8], verbose=0)
for wave, height in zip(check_y[:8, 0], heights[:, 0]):
    print(f"swell {wave:.3f} predicted {height:.3f}")
