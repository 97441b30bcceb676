import math

import torch
from torch import nn

torch.manual_seed(0)
t = torch.arange(30_000) / 12.0
tide = torch.sin(2 * math.pi * t / 12.42) + 0.3 * torch.sin(2 * math.pi * t / 24) + 0.05 * torch.randn(len(t))
tide[15_000:15_012] += 60.0
windows = tide.unfold(0, 60, 2)

model = nn.Sequential(nn.Linear(48, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 12))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)

for epoch in range(8):
    worst = 0.0
    for step, chunk in enumerate(windows.split(20)):
        past, future = chunk[:, :48], chunk[:, 48:]
        loss = nn.functional.mse_loss(model(past), future)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        worst = max(worst, loss.item())
        if step % 150 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.5f}", flush=True)
    print(f"epoch {epoch} worst batch {worst:.2f}", flush=True)
