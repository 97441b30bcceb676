"""Tide forecasts from the last hours, LSTM with a hand-written training step."""

import math

import numpy as np
import tensorflow as tf

hours = np.arange(6000)
level = np.sin(hours / 12.42 * 2 * np.pi) + 0.3 * np.sin(hours / 24 * 2 * np.pi)
level = (level + np.random.default_rng(1).normal(0, 0.05, 6000)).astype("float32")
x = np.stack([level[i : i + 24] for i in range(5900)])[..., None]
y = level[24:5924, None]
batches = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(2000, seed=1).batch(64, drop_remainder=True).repeat()

model = tf.keras.Sequential(
    [tf.keras.layers.Input((24, 1)), tf.keras.layers.LSTM(32), tf.keras.layers.Dense(1)]
)
mse = tf.keras.losses.MeanSquaredError()


@tf.function
def train_step(bx, by, rate):
    with tf.GradientTape() as tape:
        loss = mse(by, model(bx, training=True))
    for variable, grad in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables)):
        variable.assign_sub(rate * grad)
    return loss


steps = 80
for step, (bx, by) in enumerate(batches.take(steps)):
    rate = 0.05 * 0.5 * (1 + math.cos(math.pi * step / steps))
    loss = train_step(bx, by, rate)
    if step % 10 == 0:
        print(f"step {step}: loss {loss.numpy():.4f} rate {rate:.4f}")
