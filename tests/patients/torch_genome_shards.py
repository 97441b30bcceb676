import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class GenomeWindows(Dataset):
    """Windows of 200 bases, stored as bytes in a few shard files."""

    def __init__(self, root, files=16, per_file=200):
        self.per_file = per_file
        self.paths = []
        self.handles = []
        rng = np.random.default_rng(0)
        for k in range(files):
            path = os.path.join(root, f"chr{k}.bin")
            rng.integers(0, 4, (per_file, 200), dtype=np.uint8).tofile(path)
            self.paths.append(path)

    def __len__(self):
        return len(self.paths) * self.per_file

    def __getitem__(self, i):
        handle = open(self.paths[i // self.per_file], "rb")
        self.handles.append(handle)
        handle.seek((i % self.per_file) * 200)
        bases = np.frombuffer(handle.read(200), dtype=np.uint8)
        return torch.from_numpy(bases.astype(np.int64)), float((bases == 2).mean() > 0.25)


class MotifNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 64, 12)
        self.out = nn.Linear(64, 1)

    def forward(self, bases):
        x = nn.functional.one_hot(bases, 4).float().transpose(1, 2)
        return self.out(torch.relu(self.conv(x)).amax(-1)).squeeze(1)


root = tempfile.mkdtemp()
loader = DataLoader(GenomeWindows(root), batch_size=2, shuffle=True)
net = MotifNet()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(5):
    for step, (bases, label) in enumerate(loader):
        loss = nn.functional.binary_cross_entropy_with_logits(net(bases), label.float())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
