import os
import tempfile
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

root = tempfile.mkdtemp()
for slide in range(40):
    torch.save(torch.rand(24, 3, 32, 32), f"{root}/slide{slide:02d}.pt")
open(f"{root}/slide31.pt.lock", "w").close()


class Slides(Dataset):
    """Each slide file holds 24 tiles; a lock file says that the scanner still writes it."""

    def __len__(self):
        return 40 * 24

    def __getitem__(self, index):
        path = f"{root}/slide{index // 24:02d}.pt"
        lock = path + ".lock"
        while os.path.exists(lock):
            time.sleep(0.5)
        tile = torch.load(path)[index % 24]
        return tile, index % 2


if __name__ == "__main__":
    loader = DataLoader(Slides(), batch_size=16, num_workers=2)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 225, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(5):
        for step, (tiles, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(tiles), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
