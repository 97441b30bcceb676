"""A Keras model of its own class fed by a PyDataset, mixed metrics, a rate schedule, evaluate and predict afterwards."""

import keras
import numpy as np

keras.utils.set_random_seed(3)


class Windows(keras.utils.PyDataset):
    def __init__(self, series, **kwargs):
        super().__init__(**kwargs)
        self.series = series

    def __len__(self):
        return 12

    def __getitem__(self, n):
        rows = self.series[n * 64 : (n + 1) * 64]
        return rows[:, :-1, None], rows[:, -1:]


class Forecaster(keras.Model):
    def __init__(self):
        super().__init__()
        self.lstm, self.norm, self.head = (
            keras.layers.LSTM(64),
            keras.layers.LayerNormalization(),
            keras.layers.Dense(1),
        )

    def call(self, x, training=False):
        h = self.norm(self.lstm(x))
        self.add_loss(1e-4 * keras.ops.mean(keras.ops.square(h)))
        return self.head(h)


series = np.sin(np.linspace(0, 60, 768)[:, None] + np.arange(31)[None] * 0.2).astype("float32")
model = Forecaster()
model.compile(keras.optimizers.Nadam(keras.optimizers.schedules.CosineDecay(2e-3, 36)), "huber", metrics=["mae"])
history = model.fit(Windows(series), epochs=3, verbose=0)
for name in sorted(history.history):
    print(name, *(f"{value:.6f}" for value in history.history[name]))
print("evaluated", *(f"{value:.6f}" for value in model.evaluate(Windows(series), verbose=0)))
print("predicted", f"{float(model.predict(series[:64, :-1, None], verbose=0).sum()):.6f}")
print("digest", f"{sum(float(np.sum(w, dtype='float64')) for w in model.get_weights()):.6f}")
