"""Land-cover classifier over random crops of large scenes."""

import keras
import numpy as np
import tensorflow as tf

CROP = 96
scenes = np.random.default_rng(4).normal(size=(6, 700, 700, 3)).astype("float32")
labels = tf.constant([0, 1, 2, 0, 1, 2])
scenes = tf.constant(scenes)


def crop(index):
    scene = index % 6
    top = tf.random.uniform((), 0, 700 - CROP, dtype=tf.int32)
    left = tf.random.uniform((), 0, 700 - CROP, dtype=tf.int32)
    tile = scenes[scene, top : top + CROP, left : left + CROP] * (1 + 0.1 * tf.cast(scene, tf.float32))
    return tile, labels[scene]


tiles = (
    tf.data.Dataset.range(12000)
    .map(lambda i: crop(tf.cast(i, tf.int32)))
    .cache()
    .batch(32)
    .prefetch(2)
)

model = keras.Sequential(
    [
        keras.Input((CROP, CROP, 3)),
        keras.layers.Conv2D(32, 5, strides=2, activation="relu"),
        keras.layers.Conv2D(64, 3, strides=2, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(3, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(tiles, epochs=5, verbose=2)
