import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pages(Dataset):
    def __init__(self, count=1200, side=160):
        rng = np.random.default_rng(0)
        self.side = side
        self.blobs = [zlib.compress((rng.random((side, side)) > 0.9).astype(np.uint8).tobytes(), 1) for _ in range(24)]
        self.count = count
        self.pages = {}

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if i not in self.pages:
            raw = np.frombuffer(zlib.decompress(self.blobs[i % 24]), np.uint8)
            self.pages[i] = torch.from_numpy(raw.reshape(1, self.side, self.side).astype(np.float32))
        return self.pages[i], i % 2


def main():
    torch.manual_seed(0)
    loader = DataLoader(Pages(), batch_size=12, shuffle=True)
    model = nn.Sequential(nn.Conv2d(1, 8, 7, stride=4), nn.ReLU(), nn.Conv2d(8, 8, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(648, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(18):
        total = 0.0
        for page, reading in loader:
            loss = nn.functional.cross_entropy(model(page), reading)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch:2d} loss {total / len(loader):.4f} pages {len(loader.dataset.pages)}", flush=True)


if __name__ == "__main__":
    main()
