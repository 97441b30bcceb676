import keras
import numpy as np
from keras import layers

DEPTH = 36


def block(x, width):
    h = layers.LayerNormalization()(x)
    h = layers.Dense(width, activation="gelu")(h)
    h = layers.Dense(width)(h)
    return layers.Add()([x, h])


rng = np.random.default_rng(102)
text = rng.normal(size=(1200, 32)).astype("float32")
topic = rng.integers(0, 4, 1200)
text[np.arange(1200), topic] += 2

inputs = keras.Input((32,))
x = layers.Dense(64)(inputs)
for _ in range(DEPTH):
    x = block(x, 64)
tower = keras.Model(inputs, layers.Dense(4, activation="softmax")(x))
tower.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
tower.fit(text, topic, batch_size=50, epochs=12, verbose=2)
