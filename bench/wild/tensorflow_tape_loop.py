"""TensorFlow without `fit`: a tf.function step over a tf.data pipeline, a text model, checkpoints."""

import tempfile

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(2)
tokens = np.random.default_rng(0).integers(1, 800, (2048, 40))
labels = (tokens.sum(1) % 2).astype("float32")[:, None]
data = tf.data.Dataset.from_tensor_slices((tokens, labels)).shuffle(2048, seed=3).batch(256).prefetch(tf.data.AUTOTUNE)
model = keras.Sequential(
    [keras.layers.Embedding(800, 64), keras.layers.Bidirectional(keras.layers.GRU(48)), keras.layers.Dense(1)]
)
loss_of = keras.losses.BinaryCrossentropy(from_logits=True)
optimizer = keras.optimizers.AdamW(1e-3)
accuracy = keras.metrics.BinaryAccuracy(threshold=0.0)


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        said = model(x, training=True)
        loss = loss_of(y, said)
    gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, model.trainable_variables), 1.0)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    accuracy.update_state(y, said)
    return loss


folder = tempfile.mkdtemp()
for epoch in range(2):
    for x, y in data:
        loss = train_step(x, y)
    print(f"epoch {epoch} loss {float(loss):.6f} accuracy {float(accuracy.result()):.4f}")
    accuracy.reset_state()
    model.save_weights(f"{folder}/{epoch}.weights.h5")
print("digest", f"{sum(float(np.sum(w, dtype='float64')) for w in model.get_weights()):.6f}")
