"""Learns a pendulum's dynamics; the rate is raised for a while and falls again (one cycle)."""

import numpy as np
import tensorflow as tf

rng = np.random.default_rng(108)
STEPS = 6000


def rate(step):
    return 0.01 if 2000 <= step < 2040 else 0.001


angle = rng.uniform(-3, 3, (20_000, 1))
speed = rng.uniform(-2, 2, (20_000, 1))
now = np.concatenate([np.sin(angle), np.cos(angle), speed], axis=1).astype("float32")
later = (speed - 0.5 * np.sin(angle)).astype("float32")

model = tf.keras.Sequential(
    [tf.keras.layers.Input((3,)), tf.keras.layers.Dense(256, activation="tanh"),
     tf.keras.layers.Dense(256, activation="tanh"), tf.keras.layers.Dense(1)]
)
optimizer = tf.keras.optimizers.Adam(rate(0))


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss


for step in range(STEPS):
    rows = rng.integers(0, len(now), 128)
    optimizer.learning_rate.assign(rate(step))
    loss = train_step(now[rows], later[rows])
    if step % 200 == 0 or 2000 <= step < 2060 and step % 10 == 0:
        print(f"step {step}: loss {loss.numpy():.5f}")
