"""Deep Q-learning in a toy maze with a replay memory."""

import random
from collections import deque

import numpy as np
import tensorflow as tf

random.seed(0)
rng = np.random.default_rng(104)
memory = deque(maxlen=6000)

q = tf.keras.Sequential(
    [
        tf.keras.layers.Input((16, 16, 4)),
        tf.keras.layers.Conv2D(16, 3, activation="relu"),
        tf.keras.layers.Conv2D(16, 3, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(4),
    ]
)
optimizer = tf.keras.optimizers.Adam(5e-4)


@tf.function
def learn(state, action, reward, following):
    target = reward + 0.9 * tf.reduce_max(q(following), axis=1)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(q(state) * tf.one_hot(action, 4), axis=1)
        loss = tf.reduce_mean(tf.square(tf.stop_gradient(target) - value))
    optimizer.apply_gradients(zip(tape.gradient(loss, q.trainable_variables), q.trainable_variables))
    return loss


def view():
    return rng.random((16, 16, 4), dtype="float32")


state = view()
for step in range(1, 1801):
    for _ in range(8):
        action, following = random.randrange(4), view()
        memory.append((state, action, np.float32(state[8, 8, action]), following))
        state = following
    sample = random.sample(memory, min(len(memory), 32))
    states, actions, rewards, followings = (np.stack(column) for column in zip(*sample))
    if len(sample) == 32:
        loss = learn(states, actions.astype("int32"), rewards, followings)
        if step % 200 == 0:
            print(f"step {step}: {len(memory)} transitions, loss {loss.numpy():.4f}")
