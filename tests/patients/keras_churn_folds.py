"""Repeated cross-validation of a churn model; the folds vote together at the end."""

import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(7)
customers = rng.normal(size=(1500, 48)).astype("float32")
weights = rng.normal(size=48)
left = (customers @ weights + rng.normal(size=1500) > 0).astype("float32")


def build_network(width):
    network = keras.Sequential(
        [
            keras.Input((width,)),
            layers.Dense(1536, activation="relu"),
            layers.Dropout(0.3),
            layers.Dense(1536, activation="relu"),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    network.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
    return network


def folds(count, size):
    order = rng.permutation(size)
    for part in np.array_split(order, count):
        yield np.setdiff1d(order, part), part


committee = []
scores = []
for repeat in range(12):
    for number, (train, held) in enumerate(folds(5, len(customers))):
        model = build_network(customers.shape[1])
        model.fit(customers[train], left[train], epochs=1, batch_size=128, verbose=0)
        loss, accuracy = model.evaluate(customers[held], left[held], verbose=0)
        scores.append(accuracy)
        committee.append(model)
        print(f"repeat {repeat} fold {number}: accuracy {accuracy:.3f}, mean so far {np.mean(scores):.3f}")

votes = np.mean([member.predict(customers, verbose=0) for member in committee], axis=0)
print("committee accuracy", float(np.mean((votes[:, 0] > 0.5) == left)))
