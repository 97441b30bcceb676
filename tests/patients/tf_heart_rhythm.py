import numpy as np
import tensorflow as tf

STEPS, UNITS, CLASSES = 60, 32, 4

rng = np.random.default_rng(3)
rhythm = rng.integers(0, CLASSES, 640)
beats = np.sin(np.arange(STEPS) * (0.2 + 0.15 * rhythm[:, None]))[..., None]
beats = (beats + 0.2 * rng.normal(size=beats.shape)).astype("float32")


class Recurrent(tf.Module):
    """A plain LSTM cell written out, as in the lecture notes."""

    def __init__(self):
        self.kernel = tf.Variable(tf.random.normal((1 + UNITS, 4 * UNITS), stddev=0.1))
        self.bias = tf.Variable(tf.zeros((4 * UNITS,)))
        self.out = tf.Variable(tf.random.normal((UNITS, CLASSES), stddev=0.1))

    def __call__(self, signal):
        h = c = tf.zeros((signal.shape[0], UNITS))
        for t in range(signal.shape[1]):
            gates = tf.concat([signal[:, t], h], axis=1) @ self.kernel + self.bias
            i, f, g, o = tf.split(gates, 4, axis=1)
            c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(c)
        return h @ self.out


model = Recurrent()
optimizer = tf.keras.optimizers.Adam(1e-2)
for epoch in range(4):
    order = rng.permutation(len(beats))
    losses = []
    for start in range(0, len(order), 16):
        rows = order[start : start + 16]
        with tf.GradientTape() as tape:
            logits = model(tf.constant(beats[rows]))
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(rhythm[rows], logits))
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables))
        losses.append(float(loss))
    print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}")
