import argparse
import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class PriceNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(40, width), nn.GELU(),
            nn.Linear(width, width), nn.GELU(),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        return self.layers(x).squeeze(-1)


class Sweep:
    def __init__(self, loader, epochs):
        self.loader = loader
        self.epochs = epochs
        self.trials = []

    def trial(self, width, lr):
        model = PriceNet(width)
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        for _ in range(self.epochs):
            for x, y in self.loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        self.trials.append({"lr": lr, "width": width, "model": model, "optimizer": optimizer, "loss": loss.item()})
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()

    torch.manual_seed(11)
    x = torch.randn(1024, 40)
    y = x[:, :8].sum(1) + 0.1 * torch.randn(1024)
    loader = DataLoader(TensorDataset(x, y), batch_size=128, shuffle=True)

    sweep = Sweep(loader, args.epochs)
    grid = itertools.cycle([(1280, 3e-4), (1152, 1e-3), (1408, 1e-4)])
    for number, (width, lr) in zip(range(args.trials), grid):
        value = sweep.trial(width, lr)
        print(f"trial {number:3d}  width {width}  lr {lr:g}  mse {value:.4f}", flush=True)
    best = min(sweep.trials, key=lambda t: t["loss"])
    print("best:", best["lr"], best["width"], best["loss"])


if __name__ == "__main__":
    main()
