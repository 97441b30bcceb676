"""Classifier with a second look at difficult batches: those above the usual loss are set apart and replayed."""
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Glyphs(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        r = np.random.default_rng(i)
        label = int(r.integers(10))
        img = r.normal(0, 1.0, (1, 40, 40)).astype(np.float32)
        img[0, 4 * label : 4 * label + 4] += 0.6
        return {"image": img, "label": label, "weight": np.float32(r.uniform(0.5, 1.5))}


class Difficult:
    def __init__(self):
        self.usual = None
        self.kept = []

    def consider(self, batch, value):
        self.usual = value if self.usual is None else 0.9 * self.usual + 0.1 * value
        if value > self.usual:
            self.kept.append(batch)

    def again(self):
        return random.choice(self.kept) if self.kept else None


def net():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(4800, 10),
    )


def loss_of(model, batch):
    each = nn.functional.cross_entropy(model(batch["image"]), batch["label"], reduction="none")
    return (each * batch["weight"]).mean()


def main():
    torch.manual_seed(4)
    random.seed(4)
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Glyphs(9600), batch_size=16, shuffle=True, num_workers=2)
    difficult = Difficult()
    for epoch in range(5):
        for step, batch in enumerate(loader):
            for part in filter(None, (batch, difficult.again() if step % 4 == 0 else None)):
                loss = loss_of(model, part)
                opt.zero_grad()
                loss.backward()
                opt.step()
                if part is batch:
                    difficult.consider(batch, loss.item())
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f} set apart {len(difficult.kept)}", flush=True)


if __name__ == "__main__":
    main()
