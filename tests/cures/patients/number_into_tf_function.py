# cause: recompile.scalar
# line: train_step(x, y, 1.0 / (1 + step))
# needs: tensorflow
import time

import keras
import tensorflow as tf

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(0.01)
optimizer.build(model.trainable_variables)


@tf.function
def train_step(x, y, rate):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2) * rate
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


x, y = tf.random.normal((32, 8)), tf.random.normal((32, 1))
begun = time.process_time()
step = 0
while time.process_time() - begun < 12:
    step += 1
    train_step(x, y, 1.0 / (1 + step))
print("SECONDS", (time.process_time() - begun) / step)  # of a step
