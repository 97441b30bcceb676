# cause: recompile.shape
# needs: tensorflow
import time

import keras
import tensorflow as tf

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(0.01)
optimizer.build(model.trainable_variables)


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


x, y = tf.random.normal((64, 8)), tf.random.normal((64, 1))
begun = time.process_time()
for step in range(40):
    train_step(x[: step + 8], y[: step + 8])
print("SECONDS", time.process_time() - begun)
