import threading
import time

import torch
import torch.nn as nn


class RunningStats:
    def __init__(self, dim):
        self.mean, self.count = torch.zeros(dim), 0

    def update(self, x):
        self.count += 1
        self.mean += (x.mean(0) - self.mean) / self.count


model = nn.Sequential(nn.Linear(30, 200), nn.Tanh(), nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
stats = RunningStats(30)
model_lock, stats_lock = threading.Lock(), threading.Lock()
progress = {"step": 0}


def snapshot():
    """Every few seconds: a consistent copy of the normaliser and the weights."""
    while True:
        time.sleep(3)
        with stats_lock:
            mean = stats.mean.clone()
            norm = sum(float(m.abs().sum()) for m in mean.split(1))
            time.sleep(0.05)
            with model_lock:  # then the weights
                weights = {k: v.clone() for k, v in model.state_dict().items()}
        print(f"snapshot at step {progress['step']}: {len(weights)} tensors, |mean| {norm:.3f}", flush=True)


def train(steps):
    for step in range(steps):
        x = torch.randn(64, 30) + 0.5
        with model_lock:
            loss = nn.functional.mse_loss(model(x).squeeze(1), x.sum(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with stats_lock:  # then the numbers
                stats.update(x)
        progress["step"] = step
        if step % 500 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


threading.Thread(target=snapshot, daemon=True).start()
train(100_000)
