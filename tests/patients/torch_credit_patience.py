import argparse
import copy

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad, self.weights = patience, float("inf"), 0, None

    def update(self, value, model):
        if value < self.best - 1e-4:
            self.best, self.bad, self.weights = value, 0, copy.deepcopy(model.state_dict())
        else:
            self.bad += 1
        return self.bad >= self.patience


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--patience", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(2400, 24)
    y = (x[:, 0] + 0.8 * torch.randn(2400) > 0).float()
    train, val = random_split(TensorDataset(x, y), [1800, 600])
    loader = DataLoader(train, batch_size=10, shuffle=True)
    xv, yv = (torch.stack(part) for part in zip(*val))
    model = nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 1), nn.Flatten(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-4)
    stopper = EarlyStopping(args.patience)
    for epoch in range(args.epochs):
        for xb, yb in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            val_loss = nn.functional.binary_cross_entropy_with_logits(model(xv), yv).item()
        print(f"epoch {epoch:3d} train {loss.item():.4f} val {val_loss:.4f}", flush=True)
        if stopper.update(val_loss, model):
            print(f"early stopping at epoch {epoch}, best {stopper.best:.4f}")
            break
    model.load_state_dict(stopper.weights)
    torch.save(model.state_dict(), "credit.pt")


if __name__ == "__main__":
    main()
