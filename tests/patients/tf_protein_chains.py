"""Secondary structure labels for protein chains, one chain at a time."""

import numpy as np
import tensorflow as tf

rng = np.random.default_rng(8)
lengths = rng.permutation(np.arange(60, 420))[:50]
chains = [rng.integers(0, 21, n) for n in lengths]
structure = [(c % 3).astype("int32") for c in chains]

model = tf.keras.Sequential(
    [
        tf.keras.layers.Embedding(21, 48),
        tf.keras.layers.Conv1D(64, 7, padding="same", activation="relu"),
        tf.keras.layers.GRU(48, return_sequences=True),
        tf.keras.layers.Dense(3),
    ]
)
model.build((None, None))
optimizer = tf.keras.optimizers.Adam(2e-3)
optimizer.build(model.trainable_variables)
criterion = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train_on_chain(residues, labels):
    with tf.GradientTape() as tape:
        loss = criterion(labels, model(residues, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


losses = []
for number, (chain, labels) in enumerate(zip(chains, structure)):
    losses.append(float(train_on_chain(tf.constant(chain[None]), tf.constant(labels[None]))))
    if number % 10 == 9:
        print(f"chain {number + 1} ({len(chain)} residues): loss {np.mean(losses[-10:]):.4f}")
