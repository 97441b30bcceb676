import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Downscaler(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
            nn.Conv2d(channels, 4, 3, padding=1), nn.PixelShuffle(2),
        )

    def forward(self, coarse):
        return self.net(coarse)


def main():
    parser = argparse.ArgumentParser(description="downscale temperature fields")
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(0)
    fine = torch.nn.functional.avg_pool2d(torch.randn(800, 1, 40, 40), 5, 1, 2)
    coarse = torch.nn.functional.avg_pool2d(fine, 2)
    loader = DataLoader(TensorDataset(coarse, fine), batch_size=args.batch, shuffle=True)
    model = Downscaler()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} mse {total / len(loader):.5f}", flush=True)


if __name__ == "__main__":
    main()
