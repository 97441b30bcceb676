"""Regression on wine lab values with per-epoch learning rates."""

import numpy as np
import tensorflow as tf

rng = np.random.default_rng(6)
lab = rng.normal(size=(1600, 11)).astype("float32")
quality = (lab @ rng.normal(size=(11, 1)) * 0.3 + 5.5).astype("float32")

model = tf.keras.Sequential(
    [tf.keras.layers.Input((11,))]
    + [tf.keras.layers.Dense(96, activation="swish") for _ in range(8)]
    + [tf.keras.layers.Dense(1)]
)
optimizer = tf.keras.optimizers.Adam()
optimizer.build(model.trainable_variables)


def run_epoch(batches, rate):
    optimizer.learning_rate.assign(rate)

    @tf.function
    def step(features, target):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.abs(model(features) - target))
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables))
        return loss

    return np.mean([step(features, target).numpy() for features, target in batches])


data = tf.data.Dataset.from_tensor_slices((lab, quality)).shuffle(1600, seed=0).batch(80)
for epoch in range(40):
    rate = 3e-3 / (1 + epoch / 10)
    print(f"epoch {epoch}: mae {run_epoch(data, rate):.4f}")
