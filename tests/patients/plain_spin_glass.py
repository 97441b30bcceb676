"""Boltzmann machine on spin patterns with contrastive divergence, numpy only."""
import sys
import time

import numpy as np

VISIBLE, HIDDEN, SWEEPS = 400, 200, 5


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def cd_step(w, bv, bh, v0, rng, rate):
    p0 = sigmoid(v0 @ w + bh)
    h = (rng.random(p0.shape) < p0).astype(float)
    for _ in range(SWEEPS):
        v = (rng.random(v0.shape) < sigmoid(h @ w.T + bv)).astype(float)
        p = sigmoid(v @ w + bh)
        h = (rng.random(p.shape) < p).astype(float)
    w += rate * (v0.T @ p0 - v.T @ p) / len(v0)
    bv += rate * (v0 - v).mean(0)
    bh += rate * (p0 - p).mean(0)
    return ((v0 - v) ** 2).mean()


def main(argv):
    epochs = int(argv[1]) if len(argv) > 1 else 400
    rng = np.random.default_rng(31)
    kinds = rng.integers(0, 2, (12, VISIBLE))
    data = (kinds[rng.integers(0, 12, 3000)] ^ (rng.random((3000, VISIBLE)) < 0.05)).astype(float)
    w, bv, bh = rng.normal(0, 0.01, (VISIBLE, HIDDEN)), np.zeros(VISIBLE), np.zeros(HIDDEN)
    began = time.time()
    for epoch in range(epochs):
        rng.shuffle(data)
        errors = [cd_step(w, bv, bh, data[i : i + 100], rng, 0.05) for i in range(0, len(data), 100)]
        print(f"epoch {epoch} error {np.mean(errors):.4f} after {time.time() - began:.0f}s", flush=True)
    np.savez("machine.npz", w=w, bv=bv, bh=bh)


if __name__ == "__main__":
    main(sys.argv)
