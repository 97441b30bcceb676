"""Trait prediction from genotypes; after thirty plain epochs each sample is mixed with a partner of the other cohort."""
import time

import numpy as np
import torch
from torch import nn

SAMPLES, MARKERS, BATCH = 3600, 24000, 48


class Cohort:
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.genes = np.empty((SAMPLES, MARKERS), np.float32)
        for row in range(SAMPLES):
            self.genes[row] = rng.integers(0, 3, MARKERS, dtype=np.int8)
        self.trait = self.genes[:, :50].sum(1) / 10 - 5
        self.partners = None

    def partner_rows(self, rows):
        """Partners are drawn once and stay the same."""
        if self.partners is None:
            self.choice = np.random.default_rng(1).permutation(SAMPLES)
            self.partners = np.zeros_like(self.genes)
            self.drawn = np.zeros(SAMPLES, bool)
        if not self.drawn[rows].all():
            self.partners[rows] = 2 - self.genes[self.choice[rows]]
            self.drawn[rows] = True
        return self.partners[rows], -self.trait[self.choice[rows]]

    def batches(self, mixed):
        for start in range(0, SAMPLES, BATCH):
            rows = slice(start, start + BATCH)
            x, y = self.genes[rows], self.trait[rows]
            if mixed:
                px, py = self.partner_rows(rows)
                x, y = 0.8 * x + 0.2 * px, 0.8 * y + 0.2 * py
            yield torch.from_numpy(x), torch.from_numpy(y)


def main(epochs=42):
    torch.manual_seed(0)
    cohort = Cohort(7)
    net = nn.Linear(MARKERS, 1)
    nn.init.zeros_(net.weight)
    opt = torch.optim.SGD(net.parameters(), lr=1e-6)
    for epoch in range(epochs):
        began, losses = time.time(), []
        for x, y in cohort.batches(mixed=epoch >= 30):
            loss = nn.functional.mse_loss(net(x).squeeze(1), y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        print(f"epoch {epoch} loss {np.mean(losses):.4f} in {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
