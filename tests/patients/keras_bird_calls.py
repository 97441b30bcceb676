import math

import keras
import numpy as np


class CallSequence(keras.utils.PyDataset):
    """Spectrograms of bird calls, computed when they are asked for."""

    def __init__(self, calls, birds, batch_size):
        super().__init__()
        self.calls, self.birds, self.batch_size = calls, birds, batch_size

    def __len__(self):
        return math.ceil(len(self.calls) / self.batch_size)

    def spectrogram(self, call):
        rows = []
        for start in range(0, len(call) - 512, 64):
            window = call[start : start + 512] * np.hanning(512)
            rows.append(np.log1p(np.abs(np.fft.rfft(window))[:128]))
        return np.array(rows, "float32")

    def __getitem__(self, index):
        part = slice(index * self.batch_size, (index + 1) * self.batch_size)
        return np.stack([self.spectrogram(call) for call in self.calls[part]]), self.birds[part]


rng = np.random.default_rng(23)
birds = rng.integers(0, 4, 600)
time = np.arange(16000) / 16000
calls = np.sin(2 * np.pi * (900 + 600 * birds[:, None]) * time) + rng.normal(0, 1, (600, 16000))

model = keras.Sequential(
    [
        keras.Input((242, 128)),
        keras.layers.Conv1D(16, 5, strides=3, activation="relu"),
        keras.layers.GlobalMaxPooling1D(),
        keras.layers.Dense(4, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(CallSequence(calls, birds, 16), epochs=6, verbose=2)
