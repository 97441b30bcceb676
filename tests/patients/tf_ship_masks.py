"""Ship masks in radar tiles. After each round the masks of the held-out tiles are scored."""
import argparse

import numpy as np
import tensorflow as tf


def tiles(n, side, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (n, side, side, 1)).astype(np.float32)
    m = np.zeros_like(x)
    for i, (r, c) in enumerate(rng.integers(0, side - 8, (n, 2))):
        m[i, r : r + 8, c : c + 8] = 1
    return x + 1.5 * m, m


def unet_small(side):
    i = tf.keras.Input((side, side, 1))
    a = tf.keras.layers.Conv2D(24, 3, padding="same", activation="relu")(i)
    b = tf.keras.layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(a)
    c = tf.keras.layers.UpSampling2D()(b)
    d = tf.keras.layers.Concatenate()([a, c])
    return tf.keras.Model(i, tf.keras.layers.Conv2D(1, 3, padding="same")(d))


class Score:
    """Intersection over union on the held-out tiles."""

    def __init__(self, x, m):
        self.x, self.m = tf.constant(x), tf.constant(m)

    def of(self, net):
        guess = tf.cast(net(self.x, training=False) > 0, tf.float32)
        both = tf.reduce_sum(guess * self.m)
        return float(both / (tf.reduce_sum(tf.maximum(guess, self.m)) + 1e-6))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--steps", type=int, default=900)
    p.add_argument("--side", type=int, default=48)
    a = p.parse_args()
    tf.keras.utils.set_random_seed(1)
    x, m = tiles(1500, a.side, 1)
    score = Score(*tiles(2500, a.side, 2))
    net, opt = unet_small(a.side), tf.keras.optimizers.Adam(1e-3)

    @tf.function
    def step(bx, bm):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(bm, net(bx, training=True)))
        opt.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
        return loss

    feed = iter(tf.data.Dataset.from_tensor_slices((x, m)).shuffle(500).repeat().batch(8))
    for r in range(a.rounds):
        for _ in range(a.steps):
            loss = step(*next(feed))
        print(f"round {r} loss {float(loss):.4f}", flush=True)
        print(f"round {r} IoU {score.of(net):.3f}", flush=True)


if __name__ == "__main__":
    main()
