# cause: leak.model-rebuilt
# memory: 900 MB
# needs: tensorflow
import keras
import numpy as np


def build():
    layers = [keras.layers.Dense(20_000), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((256,)), *layers])
    model.compile("sgd", "mse")
    return model


x = np.random.default_rng(0).normal(size=(64, 256)).astype("float32")
models = []
for fold in range(24):
    model = build()
    history = model.fit(x, x[:, :1], epochs=2, batch_size=32, verbose=0)
    models.append(model)
    print("loss", fold, history.history["loss"][-1], flush=True)
