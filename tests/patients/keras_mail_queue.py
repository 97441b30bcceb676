"""Spam filter trained from a queue that a reader thread fills with parsed mails."""

import queue
import threading

import keras
import numpy as np

BATCH = 64
VOCABULARY = 2000
parsed = queue.Queue(maxsize=20)
rng = np.random.default_rng(90)


def parse_mailbox(count):
    for number in range(count):
        spam = number % 2
        words = rng.integers(1, VOCABULARY, 40)
        if spam:
            words[:5] = rng.integers(1, 30, 5)
        parsed.put((words, spam))


def batches():
    while True:
        mails = [parsed.get() for _ in range(BATCH)]
        yield np.stack([words for words, _ in mails]), np.array([[spam] for _, spam in mails])


threading.Thread(target=parse_mailbox, args=(60_000,), daemon=True).start()

model = keras.Sequential(
    [
        keras.Input((40,), dtype="int32"),
        keras.layers.Embedding(VOCABULARY, 32),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(32, activation="relu"),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
model.fit(batches(), steps_per_epoch=200, epochs=10, verbose=2)
