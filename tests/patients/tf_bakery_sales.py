"""Bakery sales, next day's buns. Every step's numbers go into a small sqlite file."""
import queue
import sqlite3
import threading

import numpy as np
import tensorflow as tf


class Journal:
    def __init__(self, path):
        self.db = sqlite3.connect(path)
        self.db.execute("CREATE TABLE IF NOT EXISTS steps (step INTEGER, loss REAL, mae REAL)")
        self.rows = queue.Queue(maxsize=300)
        threading.Thread(target=self._write, daemon=True).start()

    def note(self, step, **values):
        self.rows.put((step, float(values["loss"]), float(values["mae"])))

    def _write(self):
        while True:
            row = self.rows.get()
            self.db.execute("INSERT INTO steps VALUES (?, ?, ?)", row)
            self.db.commit()


def windows(days=4000, back=28, seed=3):
    rng = np.random.default_rng(seed)
    week = np.tile([80, 82, 85, 90, 120, 160, 40], days // 7 + 1)[:days]
    sold = (week + rng.normal(0, 8, days)).astype("float32") / 100
    x = np.stack([sold[i : i + back] for i in range(days - back)])[..., None]
    return x, sold[back:, None]


x, y = windows()
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(4000).batch(32, drop_remainder=True).repeat(12)
net = tf.keras.Sequential([
    tf.keras.layers.Input((28, 1)),
    tf.keras.layers.GRU(48, return_sequences=True),
    tf.keras.layers.GRU(32),
    tf.keras.layers.Dense(1),
])
opt = tf.keras.optimizers.Adam(2e-3)


@tf.function
def step_fn(bx, by):
    with tf.GradientTape() as tape:
        out = net(bx, training=True)
        loss = tf.reduce_mean(tf.square(out - by))
    opt.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
    return loss, tf.reduce_mean(tf.abs(out - by))


journal = Journal("journal.sqlite")
for number, (bx, by) in enumerate(data):
    loss, mae = step_fn(bx, by)
    journal.note(number, loss=loss, mae=mae)
    if number % 50 == 0:
        print(number, f"{loss.numpy():.4f}", flush=True)
