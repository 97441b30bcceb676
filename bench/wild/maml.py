"""Meta-learning: inner steps by torch.autograd.grad with create_graph, functional calls with fast weights."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
meta = torch.optim.Adam(net.parameters(), lr=1e-3)
for it in range(25):
    meta.zero_grad()
    outer = 0.0
    for task in range(4):
        a, b = torch.rand(1) * 4 + 0.1, torch.rand(1) * 3
        x = torch.rand(40, 1) * 10 - 5
        y = a * torch.sin(x + b)
        fast = dict(net.named_parameters())
        for _ in range(2):
            loss = F.mse_loss(functional_call(net, fast, (x[:20],)), y[:20])
            grads = torch.autograd.grad(loss, tuple(fast.values()), create_graph=True)
            fast = {name: w - 0.01 * g for (name, w), g in zip(fast.items(), grads)}
        outer = outer + F.mse_loss(functional_call(net, fast, (x[20:],)), y[20:])
    outer.backward()
    meta.step()
    if it % 5 == 4:
        print(f"{it} meta loss {outer.item() / 4:.6f}")
print("digest", f"{sum(p.double().sum().item() for p in net.parameters()):.9f}")
