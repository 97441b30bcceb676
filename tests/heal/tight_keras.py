"""A layer that really runs out of memory above some samples, for scripts with Keras on TensorFlow."""

from __future__ import annotations


def tight(fits: int) -> str:
    """The source of a layer `Tight` with room for so many samples: more ask for what no machine has."""
    return f"""
class Tight(keras.layers.Layer):
    def call(self, x):
        more = tf.maximum(tf.shape(x, out_type=tf.int64)[0] - {fits}, 0)
        return x + tf.reduce_sum(tf.tile(tf.stop_gradient(x[:1]), [more * 2**40, 1]))
"""
