import glob
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def make_volumes(folder, n=24):
    rng = np.random.default_rng(0)
    zz, yy, xx = np.mgrid[0:32, 0:64, 0:64]
    for i in range(n):
        cz, cy, cx = rng.integers(10, 22), rng.integers(20, 44), rng.integers(20, 44)
        mask = ((zz - cz) ** 2 + (yy - cy) ** 2 + (xx - cx) ** 2 < 81).astype(np.uint8)
        scan = (mask + 0.5 * rng.standard_normal(mask.shape)).astype(np.float32)
        np.savez_compressed(os.path.join(folder, f"case{i:03d}.npz"), scan=scan, mask=mask)


class Volumes(Dataset):
    def __init__(self, folder):
        self.files = sorted(glob.glob(os.path.join(folder, "*.npz")))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with np.load(self.files[i]) as f:
            scan, mask = f["scan"], f["mask"]
        scan = (scan - scan.mean()) / scan.std()
        return torch.from_numpy(scan)[None, ::2, ::2, ::2], torch.from_numpy(mask.astype(np.float32))[None, ::2, ::2, ::2]


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv3d(1, 6, 3, padding=1)
        self.b = nn.Conv3d(6, 1, 3, padding=1)

    def forward(self, x):
        return self.b(F.relu(self.a(x)))


with tempfile.TemporaryDirectory() as folder:
    make_volumes(folder)
    loader = DataLoader(Volumes(folder), batch_size=2, shuffle=True)
    model = Segmenter()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(160):
        for volume, mask in loader:
            loss = F.binary_cross_entropy_with_logits(model(volume), mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1:2d}  bce {loss.item():.4f}", flush=True)
