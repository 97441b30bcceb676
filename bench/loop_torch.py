"""A PyTorch loop whose step takes about as many milliseconds as asked; prints the median step time and the losses' sum.

loop_torch.py MILLISECONDS STEPS [cpu|launch|compute]
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
from torch import nn

milliseconds, steps = float(sys.argv[1]), int(sys.argv[2])
kind = sys.argv[3] if len(sys.argv) > 3 else "cpu"
torch.manual_seed(0)
torch.set_num_threads(1)
device = torch.device("cpu" if kind == "cpu" else "cuda")
# launch-bound: many small kernels; compute-bound: few large ones
width, depth, batch = {"cpu": (64, 2, 16), "launch": (64, 20, 16), "compute": (2048, 8, 2048)}[kind]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


net = Net().to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
data = torch.randn(batch, width, device=device)
work = torch.randn(192, 192)


def busy(until: float) -> None:
    """Real work until the step is as long as it should be; the same share of cache and cores as a model's."""
    while time.perf_counter() < until:
        work @ work


times, total = [], 0.0
for _ in range(steps):
    begun = time.perf_counter()
    if kind == "cpu":
        busy(begun + milliseconds / 1e3 * 0.8)
    loss = net(data).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if kind == "cpu":
        total += loss.item()
    times.append(time.perf_counter() - begun)
if kind != "cpu":
    torch.cuda.synchronize()
    total = loss.item()
skip = max(5, steps // 10)
print(statistics.median(times[skip:]), sum(times[skip:]) / len(times[skip:]), repr(total))
