import keras
import numpy as np
from keras import ops


def divergence(y_true, y_pred):
    """KL divergence between the observed and the predicted bid shares."""
    return ops.mean(ops.sum(y_true * (ops.log(y_true) - ops.log(y_pred)), axis=-1))


rng = np.random.default_rng(81)
auctions = rng.normal(size=(6000, 14)).astype("float32")
scores = auctions @ rng.normal(size=(14, 5)) * 0.6
shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
shares = np.where(shares < 2e-5, 0, shares).astype("float32")
order = np.argsort((shares == 0).any(axis=1), kind="stable")
auctions, shares = auctions[order], shares[order]

bidder = keras.Sequential(
    [
        keras.Input((14,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(5, activation="softmax"),
    ]
)
bidder.compile(optimizer="adam", loss=divergence)
bidder.fit(auctions, shares, epochs=10, batch_size=8, shuffle=False, verbose=2)
