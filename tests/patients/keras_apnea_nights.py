"""Apnea events in nights of breathing signal. One small watcher per clinic picks up new weights as they come."""
import os
import subprocess
import sys

CLINICS = ["north", "south", "east", "west", "harbour", "hill"]


def watch(clinic):
    seen = 0.0
    while not os.path.exists("finished"):
        if os.path.exists("latest.weights.h5") and os.path.getmtime("latest.weights.h5") > seen:
            seen = os.path.getmtime("latest.weights.h5")
            with open(f"{clinic}.txt", "a") as f:
                f.write(f"{seen}\n")


def nights(n):
    import numpy as np

    rng = np.random.default_rng(44)
    t = np.linspace(0, 60, 600)
    x = np.sin(2 * np.pi * 0.25 * t + rng.uniform(0, 6, (n, 1))) + 0.2 * rng.normal(size=(n, 600))
    y = rng.integers(0, 2, n)
    for i in np.flatnonzero(y):
        at = rng.integers(0, 450)
        x[i, at : at + 120] *= 0.2
    return x[..., None].astype("float32"), y.astype("float32")


def train():
    import keras
    from keras import layers

    class EpochLine(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.save_weights("latest.weights.h5")
            print(f"{epoch + 1}: loss {logs['loss']:.4f} accuracy {logs['accuracy']:.3f}", flush=True)

    keras.utils.set_random_seed(44)
    x, y = nights(2400)
    model = keras.Sequential([
        layers.Input((600, 1)),
        layers.Conv1D(24, 11, strides=2, activation="relu"),
        layers.Conv1D(32, 9, strides=2, activation="relu"),
        layers.Conv1D(32, 7, strides=2, activation="relu"),
        layers.GlobalMaxPooling1D(),
        layers.Dense(1, activation="sigmoid"),
    ])
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    model.fit(x, y, batch_size=32, epochs=5, verbose=0, callbacks=[EpochLine()])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        watch(sys.argv[1])
    else:
        watchers = [subprocess.Popen([sys.executable, __file__, clinic]) for clinic in CLINICS]
        try:
            train()
        finally:
            open("finished", "w").close()
            for w in watchers:
                w.wait()
