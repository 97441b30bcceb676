"""Yearly consumption of buildings (kWh) from their sheet. Runs in mixed precision, the old box is slow."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Buildings(Dataset):
    COLUMNS = 32

    def __init__(self, n=9600, seed=77):
        g = torch.Generator().manual_seed(seed)
        self.sheet = torch.rand(n, self.COLUMNS, generator=g)
        area = 80 + 900 * self.sheet[:, 0] ** 2
        self.kwh = area * (60 + 40 * self.sheet[:, 1]) * (1 + 0.1 * torch.randn(n, generator=g))

    def __len__(self):
        return len(self.sheet)

    def __getitem__(self, i):
        return self.sheet[i], self.kwh[i]


def build():
    return nn.Sequential(
        nn.Linear(Buildings.COLUMNS, 256), nn.ReLU(),
        nn.Linear(256, 256), nn.ReLU(),
        nn.Linear(256, 1),
    )


class Fit:
    def __init__(self, model, loader, epochs):
        self.model, self.loader, self.epochs = model, loader, epochs
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        self.criterion = nn.MSELoss()

    def _one(self, x, y):
        with torch.autocast("cpu", dtype=torch.float16):
            estimate = self.model(x).squeeze(1)
        loss = self.criterion(estimate.float() / 1000, y / 1000)  # in MWh
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def __call__(self):
        for e in range(self.epochs):
            losses = [self._one(x, y) for x, y in self.loader]
            print(f"epoch {e + 1}/{self.epochs}: off by {(sum(losses) / len(losses)) ** 0.5:.2f} MWh", flush=True)


torch.manual_seed(0)
Fit(build(), DataLoader(Buildings(), batch_size=64, shuffle=True), epochs=16)()
