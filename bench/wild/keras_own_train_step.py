"""Keras with a train_step of its own: a GAN of two optimizers inside of `fit`, data from a generator."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)


class Gan(keras.Model):
    def __init__(self):
        super().__init__()
        self.d = keras.Sequential([keras.Input((64,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(1)])
        self.g = keras.Sequential([keras.Input((16,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(64)])
        self.noise = keras.random.SeedGenerator(7)
        self.d_loss, self.g_loss = keras.metrics.Mean(name="d"), keras.metrics.Mean(name="g")

    def compile(self, d_optimizer, g_optimizer):
        super().compile()
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer
        self.bce = keras.losses.BinaryCrossentropy(from_logits=True)

    def train_step(self, real):
        n = tf.shape(real)[0]
        fake = self.g(keras.random.normal((n, 16), seed=self.noise))
        with tf.GradientTape() as tape:
            said = self.d(tf.concat([real, fake], 0))
            loss = self.bce(tf.concat([tf.ones((n, 1)), tf.zeros((n, 1))], 0), said)
        self.d_optimizer.apply(tape.gradient(loss, self.d.trainable_weights), self.d.trainable_weights)
        with tf.GradientTape() as tape:
            g_loss = self.bce(tf.ones((n, 1)), self.d(self.g(keras.random.normal((n, 16), seed=self.noise))))
        self.g_optimizer.apply(tape.gradient(g_loss, self.g.trainable_weights), self.g.trainable_weights)
        self.d_loss.update_state(loss)
        self.g_loss.update_state(g_loss)
        return {"d": self.d_loss.result(), "g": self.g_loss.result()}


def batches():
    rng = np.random.default_rng(0)
    while True:
        yield rng.normal(1.0, 0.5, (128, 64)).astype("float32")


model = Gan()
model.compile(keras.optimizers.Adam(3e-4), keras.optimizers.Adam(3e-4))
data = tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec((128, 64), tf.float32)).prefetch(2)
history = model.fit(data, steps_per_epoch=20, epochs=3, verbose=0)
for name in sorted(history.history):
    print(name, *(f"{value:.6f}" for value in history.history[name]))
print("digest", f"{sum(float(np.sum(w, dtype='float64')) for w in model.get_weights()):.6f}")
