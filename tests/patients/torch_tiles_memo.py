import zlib

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class SatelliteTiles(Dataset):
    """Tiles are held compressed and decoded when asked for."""

    def __init__(self, count=9000, size=144):
        rng = np.random.default_rng(1)
        pattern = rng.integers(0, 255, (16, size, size), dtype=np.uint8)
        self.size = size
        self.packed = [zlib.compress((pattern[i % 16] // 8).tobytes(), 1) for i in range(16)]
        self.count = count
        self.decoded = {}

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if i not in self.decoded:
            raw = np.frombuffer(zlib.decompress(self.packed[i % 16]), dtype=np.uint8)
            tile = torch.from_numpy(raw.reshape(1, self.size, self.size).astype(np.float32)) / 31.0
            tile = tile + 0.01 * i / self.count
            self.decoded[i] = tile
        return self.decoded[i], (i % 16) // 4


class TileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 24, 5, stride=2), nn.ReLU(), nn.Conv2d(24, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4)
        )
        self.classify = nn.Linear(256, 4)

    def forward(self, x):
        return self.classify(self.features(x).flatten(1))


def main():
    torch.manual_seed(0)
    loader = DataLoader(SatelliteTiles(), batch_size=16, shuffle=True)
    model, loss_fn = TileNet(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(5):
        for step, (tiles, kinds) in enumerate(loader):
            loss = loss_fn(model(tiles), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 40 == 0:
                print(f"epoch {epoch} [{step}/{len(loader)}] loss {loss.item():.4f}", flush=True)


main()
