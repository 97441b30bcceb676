"""Autoencoder in numpy; the codes of every step are archived through tee, so that they can be followed with tail."""
import json
import subprocess

import numpy as np


class Archive:
    def __init__(self, path):
        self.tool = subprocess.Popen(["tee", "-a", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def append(self, step, loss, codes):
        entry = {"step": step, "loss": round(float(loss), 5), "codes": [round(float(c), 3) for c in codes[:12]]}
        self.tool.stdin.write(json.dumps(entry) + "\n")
        self.tool.stdin.flush()

    def close(self):
        self.tool.communicate()


class AutoEncoder:
    def __init__(self, n_in, n_code, rng):
        self.w1 = rng.normal(0, n_in ** -0.5, (n_in, n_code))
        self.w2 = rng.normal(0, n_code ** -0.5, (n_code, n_in))

    def step(self, x, lr):
        code = np.tanh(x @ self.w1)
        out = code @ self.w2
        err = out - x
        back = (err @ self.w2.T) * (1 - code ** 2)
        self.w2 -= lr * code.T @ err / len(x)
        self.w1 -= lr * x.T @ back / len(x)
        return (err ** 2).mean(), code


def main():
    rng = np.random.default_rng(4)
    frames = rng.normal(size=(4000, 16)) @ rng.normal(size=(16, 900)) / 4
    net, archive = AutoEncoder(900, 64, rng), Archive("codes.jsonl")
    for step in range(3000):
        batch = frames[rng.integers(0, len(frames), 512)]
        loss, code = net.step(batch, 0.01)
        archive.append(step, loss, code.mean(0))
        if step % 50 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
    archive.close()


if __name__ == "__main__":
    main()
