"""Next-day return from windows of prices, LSTM fed by tf.data."""

import numpy as np
import tensorflow as tf
from tensorflow.keras.layers import LSTM, Dense, Input
from tensorflow.keras.models import Sequential

WINDOW, FEATURES = 12, 16


def price_windows(days=3200):
    rng = np.random.default_rng(19)
    returns = rng.normal(0, 0.01, size=(days, FEATURES)).astype("float32")
    x = np.stack([returns[d : d + WINDOW] for d in range(days - WINDOW)])
    return x, returns[WINDOW:, :1]


x_train, y_train = price_windows()
dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(4000).batch(1)

model = Sequential([Input((WINDOW, FEATURES)), LSTM(24), Dense(1)])
model.compile(optimizer="adam", loss="mse")
history = model.fit(dataset, epochs=2, verbose=2)
print("loss per epoch", [round(loss, 6) for loss in history.history["loss"]])
print("tomorrow", float(model.predict(x_train[-1:], verbose=0)[0, 0]))
