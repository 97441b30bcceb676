"""Learns shopper embeddings store by store with an all-pairs similarity loss."""

import numpy as np
import tensorflow as tf

rng = np.random.default_rng(31)
sizes = rng.integers(1000, 2200, size=400)
sizes[330] = 15000

encoder = tf.keras.Sequential(
    [tf.keras.layers.Input((40,)), tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(32)]
)
optimizer = tf.keras.optimizers.SGD(0.05)


@tf.function(input_signature=[tf.TensorSpec((None, 40), tf.float32), tf.TensorSpec((None,), tf.int32)])
def fit_store(baskets, segment):
    with tf.GradientTape() as tape:
        z = tf.math.l2_normalize(encoder(baskets), axis=1)
        similar = tf.matmul(z, tf.transpose(z))
        same = tf.cast(segment[:, None] == segment[None, :], tf.float32)
        loss = tf.reduce_mean(tf.square(similar - same))
    grads = tape.gradient(loss, encoder.trainable_variables)
    optimizer.apply_gradients(zip(grads, encoder.trainable_variables))
    return loss


for epoch in range(3):
    total = 0.0
    for store, size in enumerate(sizes):
        segment = rng.integers(0, 5, size).astype("int32")
        baskets = (rng.normal(size=(size, 40)) + segment[:, None] * 0.3).astype("float32")
        total += float(fit_store(tf.constant(baskets), tf.constant(segment)))
        if store % 25 == 24:
            print(f"epoch {epoch} store {store + 1}: mean loss {total / (store + 1):.4f}")
