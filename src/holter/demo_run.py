"""A small training run that falls ill: what `holter demo` records. Pure Python, no framework."""

import random
import threading
import time

import holter

WEIGHTS = [0.0] * 8
BEST = {"loss": float("inf")}
LOCK = threading.Lock()


def batches(count: int) -> "list[tuple[list[float], float]]":
    truth = [0.5 * i for i in range(8)]
    made = []
    for _ in range(count):
        x = [random.gauss(0, 1) for _ in range(8)]
        made.append((x, sum(a * b for a, b in zip(x, truth, strict=True))))
    return made


def keep_best(loss: float) -> None:
    with LOCK:
        BEST["loss"] = min(BEST["loss"], loss)


def train(epochs: int) -> None:
    for epoch in range(1, epochs + 1):
        for x, y in holter.track(batches(25)):
            error = sum(a * b for a, b in zip(x, WEIGHTS, strict=True)) - y
            for i, value in enumerate(x):
                WEIGHTS[i] -= 0.05 * error * value
            time.sleep(0.05)
            holter.step(loss=error * error, lr=0.05)
        with LOCK:
            if epoch == 3:
                keep_best(error * error)
        print(f"epoch {epoch}: loss {error * error:.4f}", flush=True)


if __name__ == "__main__":
    random.seed(0)
    train(epochs=10)
