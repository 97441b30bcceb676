import keras
import numpy as np
from keras import layers

PRODUCTS = 1_200_000
DIM = 128


def sessions(count, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, PRODUCTS, size=(count, 8)), rng.integers(0, 2, size=(count, 1))


history = keras.Input((8,), dtype="int32", name="viewed")
vectors = layers.Embedding(PRODUCTS, DIM, name="product")(history)
pooled = layers.GlobalAveragePooling1D()(vectors)
hidden = layers.Dense(64, activation="relu")(pooled)
purchase = layers.Dense(1, activation="sigmoid")(hidden)

model = keras.Model(history, purchase)
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="binary_crossentropy", metrics=["auc"])
model.summary()

viewed, bought = sessions(20_000, seed=0)
model.fit(viewed, bought, batch_size=64, epochs=3, validation_data=sessions(2_000, seed=1), verbose=2)
model.save("product_vectors.keras")
