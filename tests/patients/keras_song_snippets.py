import keras
import numpy as np

rng = np.random.default_rng(77)
GENRES = 5


def snippets(count):
    """Songs are cut where the beat allows, so the snippets of each batch have their own length."""
    for _ in range(count):
        frames = int(rng.integers(90, 400))
        genre = rng.integers(0, GENRES, 16)
        audio = rng.normal(size=(16, frames, 24)) + genre[:, None, None] * 0.2
        yield audio.astype("float32"), genre


inputs = keras.Input((None, 24))
h = keras.layers.Conv1D(32, 5, activation="relu")(inputs)
h = keras.layers.Conv1D(64, 5, activation="relu")(h)
h = keras.layers.GlobalAveragePooling1D()(h)
h = keras.layers.Dense(64, activation="relu")(h)
outputs = keras.layers.Dense(GENRES, activation="softmax")(h)
model = keras.Model(inputs, outputs)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=True)

for step, (audio, genre) in enumerate(snippets(36)):
    loss, accuracy = model.train_on_batch(audio, genre)
    if step % 5 == 0:
        print(f"step {step}: {audio.shape[1]} frames, loss {loss:.3f}, accuracy {accuracy:.2f}")
