import os
import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = os.path.join(os.environ.get("PATIENT_DISK", "."), "archive")
SIDE, COUNT = 224, 3600


def fetch():
    os.makedirs(DATA, exist_ok=True)
    rng = np.random.default_rng(0)
    for i in range(COUNT):
        rng.integers(0, 255, (3, SIDE, SIDE), dtype=np.uint8).tofile(os.path.join(DATA, f"{i:05d}.raw"))


class Archive(Dataset):
    def __len__(self):
        return COUNT

    def __getitem__(self, i):
        raw = bytearray(3 * SIDE * SIDE)
        with open(os.path.join(DATA, f"{i:05d}.raw"), "rb", buffering=0) as f:
            f.readinto(memoryview(raw))
        picture = torch.frombuffer(raw, dtype=torch.uint8).view(3, SIDE, SIDE)
        return picture[:, ::4, ::4].float() / 255, i % 7


def train():
    loader = DataLoader(Archive(), batch_size=24, shuffle=True, num_workers=2)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 7),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 10 == 0:
            print(f"step {step}/{len(loader)} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    fetch() if "--fetch" in sys.argv else train()
