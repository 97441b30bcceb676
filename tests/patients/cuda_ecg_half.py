"""Arrhythmia classifier; weights in half precision to save memory."""

import torch
from torch import nn

torch.manual_seed(1)
beats = torch.randn(20_000, 1, 360) * 40
kinds = (beats.abs().amax(dim=(1, 2)) > 150).long()

net = nn.Sequential(
    nn.Conv1d(1, 64, 9, padding=4), nn.ReLU(), nn.Conv1d(64, 128, 9, padding=4), nn.ReLU(),
    nn.Conv1d(128, 128, 9, padding=4), nn.ReLU(), nn.Flatten(), nn.Linear(128 * 360, 2),
).cuda()
net = net.half()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

for epoch in range(30):
    order = torch.randperm(len(beats))
    total = 0.0
    for start in range(0, len(order), 256):
        rows = order[start : start + 256]
        x, y = beats[rows].cuda().half(), kinds[rows].cuda()
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: loss {total / (len(order) / 256):.4f}", flush=True)
