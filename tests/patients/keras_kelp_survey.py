"""Kelp cover from drone frames. Decoding is costly, so decoded frames are cached beside the data."""
import os

import keras
import numpy as np
import tensorflow as tf

ROOT = os.environ.get("PATIENT_DISK", ".")
FRAMES, SIDE = 12000, 64


def frame(seed):
    seed = tf.stack([seed, 7])
    picture = tf.random.stateless_uniform((SIDE, SIDE, 3), seed)
    cover = tf.random.stateless_uniform((1,), seed + 1)
    return picture * 0.5 + cover[None, None, :] * 0.5, cover


def load(batch):
    frames = tf.data.Dataset.range(FRAMES).map(lambda i: frame(tf.cast(i, tf.int32)), num_parallel_calls=2)
    frames = frames.cache(os.path.join(ROOT, "decoded"))
    return frames.shuffle(256).batch(batch).prefetch(2)


def build():
    inputs = keras.Input((SIDE, SIDE, 3))
    h = inputs
    for width in (32, 64, 96):
        h = keras.layers.Conv2D(width, 3, padding="same", activation="relu")(h)
        h = keras.layers.MaxPooling2D()(h)
    h = keras.layers.GlobalAveragePooling2D()(h)
    return keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(h))


keras.utils.set_random_seed(31)
model = build()
model.compile(optimizer="adam", loss="mse", metrics=["mae"])
history = model.fit(load(16), epochs=8, verbose=2)
np.savetxt("mae.txt", history.history["mae"])
