import numpy as np
import tensorflow as tf


class ArmController:
    """Behaviour cloning of joint commands, exploration noise fades out while training."""

    def __init__(self, joints=7, hidden=256):
        self.net = tf.keras.Sequential(
            [
                tf.keras.layers.Input((joints * 3,)),
                tf.keras.layers.Dense(hidden, activation="tanh"),
                tf.keras.layers.LayerNormalization(),
                tf.keras.layers.Dense(hidden, activation="tanh"),
                tf.keras.layers.LayerNormalization(),
                tf.keras.layers.Dense(joints),
            ]
        )
        self.optimizer = tf.keras.optimizers.Adam(3e-4)
        self.optimizer.build(self.net.trainable_variables)

    @tf.function
    def learn(self, state, command, iteration):
        noise = tf.random.normal(tf.shape(state)) / (1.0 + 0.01 * iteration)
        with tf.GradientTape() as tape:
            error = tf.reduce_mean(tf.square(self.net(state + 0.1 * noise) - command))
        grads = tape.gradient(error, self.net.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.net.trainable_variables))
        return error


rng = np.random.default_rng(12)
mixing = rng.normal(size=(21, 7)).astype("float32") / 5
arm = ArmController()
errors = []
for iteration in range(80):
    state = rng.normal(size=(128, 21)).astype("float32")
    errors.append(float(arm.learn(tf.constant(state), tf.constant(np.tanh(state @ mixing)), iteration)))
    if iteration % 20 == 0:
        print(f"iteration {iteration}: error {np.mean(errors[-20:]):.4f}")
