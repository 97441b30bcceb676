"""Traffic counts at road sensors; every batch is read from compressed day files."""

import os
import tempfile

import numpy as np
import tensorflow as tf

folder = tempfile.mkdtemp(prefix="traffic")
rng = np.random.default_rng(61)
for day in range(24):
    counts = rng.poisson(40, size=(96, 128, 64)).astype("float32")
    np.savez_compressed(os.path.join(folder, f"day{day:03d}.npz"), counts=counts)
print(f"{len(os.listdir(folder))} day files")


def days():
    for name in sorted(os.listdir(folder)):
        counts = np.load(os.path.join(folder, name))["counts"]
        yield counts / 40.0, counts.mean(axis=(1, 2), keepdims=False)[:, None] / 40.0


dataset = tf.data.Dataset.from_generator(
    days,
    output_signature=(tf.TensorSpec((96, 128, 64), tf.float32), tf.TensorSpec((96, 1), tf.float32)),
)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((128, 64)),
        tf.keras.layers.Conv1D(32, 5, activation="relu"),
        tf.keras.layers.GlobalAveragePooling1D(),
        tf.keras.layers.Dense(1),
    ]
)
optimizer = tf.keras.optimizers.Adam(1e-3)


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss


for epoch in range(40):
    for x, y in dataset:
        loss = train_step(x, y)
    print(f"epoch {epoch + 1}: loss {loss.numpy():.5f}")
