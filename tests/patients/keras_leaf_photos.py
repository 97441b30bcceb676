import numpy as np
import tensorflow as tf

SIDE = 112
SPECIES = 12
rng = np.random.default_rng(2)
photos = rng.random((1024, SIDE, SIDE, 3), dtype="float32")
species = rng.integers(0, SPECIES, 1024)
targets = tf.keras.utils.to_categorical(species, SPECIES)

model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((SIDE, SIDE, 3)),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Conv2D(64, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(SPECIES, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="categorical_crossentropy", metrics=["accuracy"])

batch_size = 512
for epoch in range(4):
    order = rng.permutation(len(photos))
    for start in range(0, len(photos), batch_size):
        rows = order[start : start + batch_size]
        loss, accuracy = model.train_on_batch(photos[rows], targets[rows])
        print(f"epoch {epoch + 1} image {start}: loss {loss:.3f} accuracy {accuracy:.3f}")
print("done")
