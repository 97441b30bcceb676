"""Four-fold validation of a small diabetes model."""

import gc

import keras
import numpy as np

rng = np.random.default_rng(103)
patients = rng.normal(size=(900, 10)).astype("float32")
sick = (patients[:, :3].sum(axis=1) + 0.5 * rng.normal(size=900) > 0).astype("float32")


def new_model():
    model = keras.Sequential(
        [
            keras.Input((10,)),
            keras.layers.Dense(512, activation="relu"),
            keras.layers.Dense(512, activation="relu"),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return model


scores = []
order = rng.permutation(900)
for fold, held in enumerate(np.array_split(order, 4)):
    train = np.setdiff1d(order, held)
    keras.backend.clear_session()
    model = new_model()
    model.fit(patients[train], sick[train], epochs=60, batch_size=32, verbose=0)
    scores.append(model.evaluate(patients[held], sick[held], verbose=0)[1])
    del model
    gc.collect()
    print(f"fold {fold}: {scores[-1]:.3f}")
print(f"accuracy {np.mean(scores):.3f} +- {np.std(scores):.3f}")
