"""Handwritten letters with differentially private SGD: clip each example's gradient, sum, add noise."""
import numpy as np
import tensorflow as tf

CLIP, NOISE, BATCH = 1.0, 0.6, 48


def letters(n, seed=0):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 6, n)
    ink = rng.normal(0, 1, (n, 16, 16, 1)).astype("float32")
    ink[np.arange(n), label * 2, :, 0] += 1.5
    return ink, label.astype("int32")


class PrivateTrainer:
    def __init__(self, model, rate):
        self.model, self.rate = model, rate
        self.loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def example_gradient(self, image, label):
        with tf.GradientTape() as tape:
            loss = self.loss_fn(label[None], self.model(image[None], training=True))
        grads = tape.gradient(loss, self.model.trainable_variables)
        grads, _ = tf.clip_by_global_norm(grads, CLIP)
        return loss, grads

    def train_batch(self, images, labels):
        total = [tf.zeros_like(w) for w in self.model.trainable_variables]
        losses = []
        for image, label in zip(images, labels):
            loss, grads = self.example_gradient(image, label)
            total = [t + g for t, g in zip(total, grads)]
            losses.append(float(loss))
        for w, t in zip(self.model.trainable_variables, total):
            noise = tf.random.normal(w.shape, stddev=CLIP * NOISE)
            w.assign_sub(self.rate * (t + noise) / len(labels))
        return sum(losses) / len(losses)


def main():
    tf.keras.utils.set_random_seed(5)
    x, y = letters(2400)
    model = tf.keras.Sequential([
        tf.keras.layers.Input((16, 16, 1)),
        tf.keras.layers.Conv2D(8, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(24, activation="relu"),
        tf.keras.layers.Dense(6),
    ])
    trainer = PrivateTrainer(model, rate=0.4)
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(2400).batch(BATCH)
    for number, (images, labels) in enumerate(data):
        loss = trainer.train_batch(images, labels)
        if number % 10 == 0:
            print(f"batch {number} loss {loss:.3f}", flush=True)


main()
