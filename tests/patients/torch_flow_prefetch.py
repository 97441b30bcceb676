import queue
import threading

import torch
from torch import nn

torch.manual_seed(0)
ready = queue.Queue(maxsize=8)


def read_sample(i):
    """Two frames and their flow; every sample carries its own size tag."""
    size = 24 if i != 1400 else -1
    return torch.randn(2, size, size), torch.randn(2, size, size)


def fill(count, batch):
    try:
        for start in range(0, count, batch):
            samples = [read_sample(i) for i in range(start, start + batch)]
            ready.put(tuple(torch.stack(part) for part in zip(*samples)))
    except Exception as error:
        print("reader:", error, flush=True)


reader = threading.Thread(target=fill, args=(8000, 8), daemon=True)
reader.start()

model = nn.Sequential(nn.Conv2d(2, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, 2, 3, padding=1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

for step in range(1000):
    pair = ready.get()
    frames, flow = pair
    loss = (model(frames) - flow).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} epe {loss.item():.4f}", flush=True)
