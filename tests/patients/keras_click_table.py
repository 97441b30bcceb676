"""Click-through model over wide hashed rows held in one array."""

import keras
import numpy as np

ROWS, COLUMNS = 170_000, 1536

rng = np.random.default_rng(9)
table = np.empty((ROWS, COLUMNS), "float32")
for start in range(0, ROWS, 10_000):
    table[start : start + 10_000] = rng.random((10_000, COLUMNS), dtype="float32")
clicks = (table[:, 0] > 0.7).astype("float32")

model = keras.Sequential(
    [
        keras.Input((COLUMNS,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile("adam", "binary_crossentropy")

for step in range(90):
    rows = rng.integers(0, ROWS, 2048)
    loss = model.train_on_batch(table[rows], clicks[rows, None])
    if step % 5 == 0:
        print(f"step {step}: loss {float(loss):.4f}", flush=True)
