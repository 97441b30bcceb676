import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

folder = os.path.join(tempfile.gettempdir(), "xray")
os.makedirs(folder, exist_ok=True)
rng = np.random.default_rng(0)
for part in range(12):
    block = np.broadcast_to(rng.integers(0, 256, (1, 128, 128), dtype=np.uint8), (1800, 128, 128))
    np.save(os.path.join(folder, f"shard-{part:02d}.npy"), block)

# ---- load
shards, targets = [], []
for name in sorted(os.listdir(folder)):
    shards.append(np.load(os.path.join(folder, name)))
    targets.append(np.full(1800, int(name[6:8]) % 2))
    print("read", name, flush=True)
images = torch.from_numpy(np.concatenate(shards)).float() / 255
targets = torch.from_numpy(np.concatenate(targets))
loader = DataLoader(TensorDataset(images.unsqueeze(1), targets), batch_size=32, shuffle=True)

# ---- model
net = nn.Sequential(
    nn.Conv2d(1, 8, 7, stride=4), nn.ReLU(),
    nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2),
)
opt = torch.optim.Adam(net.parameters(), lr=3e-4)

# ---- train
for epoch in range(5):
    for i, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 100 == 0:
            print(epoch, i, loss.item(), flush=True)
