import numpy as np
import tensorflow as tf

BATCH = 24
seen = []


def patches(batch_size):
    """Endless stream of augmented patches."""
    while True:
        x = tf.random.normal((batch_size, 96, 96, 3))
        x = tf.image.random_flip_left_right(x)
        x = tf.image.random_brightness(x, 0.2)
        y = tf.random.uniform((batch_size,), 0, 5, dtype=tf.int32)
        seen.append((x, y))
        yield x, y


model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((96, 96, 3)),
        tf.keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.GlobalAveragePooling2D(),
        tf.keras.layers.Dense(5),
    ]
)
optimizer = tf.keras.optimizers.Adam(1e-3)
loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
stream = patches(BATCH)

losses = []
for step in range(1500):
    x, y = next(stream)
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss = loss_fn(y, logits)
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    losses.append(float(loss))
    if step % 20 == 0:
        print(f"step {step}: loss {np.mean(losses[-20:]):.4f} ({len(losses) * BATCH} patches)")
