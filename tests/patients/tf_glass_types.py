import numpy as np
import tensorflow as tf

rng = np.random.default_rng(105)
glass = rng.normal(size=(5030, 9)).astype("float32")
kind = np.abs(glass).argmax(axis=1) % 6

train = tf.data.Dataset.from_tensor_slices((glass, kind)).shuffle(5030, seed=4).batch(64).prefetch(2)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((9,)),
        tf.keras.layers.Dense(256, activation="relu"),
        tf.keras.layers.Dense(256, activation="relu"),
        tf.keras.layers.Dense(6),
    ]
)
optimizer = tf.keras.optimizers.Adam(1e-3)
loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
accuracy = tf.keras.metrics.SparseCategoricalAccuracy()


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss = loss_fn(y, logits)
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    accuracy.update_state(y, logits)
    return loss


for epoch in range(60):
    accuracy.reset_state()
    for x, y in train:
        loss = train_step(x, y)
    print(f"epoch {epoch + 1}: loss {float(loss):.4f} accuracy {float(accuracy.result()):.3f}")
