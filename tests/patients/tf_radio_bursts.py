"""Detects bursts in radio spectra; the spectra are simulated by a reader thread of the pipeline."""

import tensorflow as tf

BINS, FRAMES = 256, 192


def simulate(index):
    antenna = tf.complex(tf.random.normal((FRAMES, BINS)), tf.random.normal((FRAMES, BINS)))
    noise = tf.abs(antenna)
    burst = tf.cast(index % 3 == 0, tf.float32)
    row = tf.random.uniform((), 0, BINS, dtype=tf.int32)
    return noise + 4.0 * burst * tf.one_hot(row, BINS), burst


spectra = tf.data.Dataset.range(100000).map(simulate, num_parallel_calls=1).batch(8).prefetch(4000)

inputs = tf.keras.Input((FRAMES, BINS))
h = tf.keras.layers.Conv1D(96, 5, activation="relu")(inputs)
h = tf.keras.layers.Conv1D(96, 5, activation="relu")(h)
h = tf.keras.layers.GRU(32)(h)
model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(h))
optimizer = tf.keras.optimizers.Adam(1e-3)
bce = tf.keras.losses.BinaryCrossentropy(from_logits=True)


@tf.function
def update(x, y):
    with tf.GradientTape() as tape:
        loss = bce(y[:, None], model(x, training=True))
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss


running = tf.keras.metrics.Mean()
for step, (x, y) in enumerate(spectra, start=1):
    running.update_state(update(x, y))
    if step % 20 == 0:
        print(f"step {step}: loss {running.result().numpy():.4f}")
        running.reset_state()
    if step == 2000:
        break
