"""Few-shot sine waves, first-order MAML. Each task gets an inner loop of its own."""
import numpy as np
import tensorflow as tf


def make_net():
    return tf.keras.Sequential([
        tf.keras.layers.Input((1,)),
        tf.keras.layers.Dense(40, activation="relu"),
        tf.keras.layers.Dense(40, activation="relu"),
        tf.keras.layers.Dense(1),
    ])


class Task:
    def __init__(self, rng):
        self.height, self.shift = rng.uniform(0.5, 3.0), rng.uniform(0, np.pi)

    def draw(self, rng, n):
        x = rng.uniform(-5, 5, (n, 1)).astype("float32")
        return tf.constant(x), tf.constant((self.height * np.sin(x + self.shift)).astype("float32"))


class InnerLoop:
    def __init__(self, net, rate, times):
        self.net, self.rate, self.times = net, rate, times

    @tf.function
    def adapt(self, x, y, qx, qy):
        start = [tf.identity(w) for w in self.net.trainable_variables]
        for _ in range(self.times):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.net(x) - y) ** 2)
            for w, g in zip(self.net.trainable_variables, tape.gradient(loss, self.net.trainable_variables)):
                w.assign_sub(self.rate * g)
        with tf.GradientTape() as tape:
            query = tf.reduce_mean((self.net(qx) - qy) ** 2)
        grads = tape.gradient(query, self.net.trainable_variables)
        for w, s in zip(self.net.trainable_variables, start):
            w.assign(s)
        return query, grads


class Meta:
    def __init__(self):
        self.net = make_net()
        self.opt = tf.keras.optimizers.Adam(1e-3)
        self.rng = np.random.default_rng(17)

    def learn_from(self, task):
        inner = InnerLoop(self.net, rate=0.01, times=5)
        x, y = task.draw(self.rng, 10)
        qx, qy = task.draw(self.rng, 10)
        query, grads = inner.adapt(x, y, qx, qy)
        self.opt.apply_gradients(zip(grads, self.net.trainable_variables))
        return float(query)


if __name__ == "__main__":
    tf.keras.utils.set_random_seed(17)
    meta, mean = Meta(), 0.0
    for number in range(90):
        mean = 0.9 * mean + 0.1 * meta.learn_from(Task(meta.rng))
        if number % 10 == 0:
            print(f"task {number}: {mean:.3f}", flush=True)
