"""Metric learning with triplets: one network called three times, weight normalisation, a hook that watches gradients."""

import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import weight_norm

torch.manual_seed(0)
net = nn.Sequential(weight_norm(nn.Conv1d(8, 32, 5)), nn.ReLU(), weight_norm(nn.Conv1d(32, 32, 5)), nn.ReLU(),
                    nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(32, 16))  # fmt: skip
norms = []
net[-1].weight.register_hook(lambda g: norms.append(float(g.norm())))
optimizer = torch.optim.NAdam(net.parameters(), lr=1e-3)
criterion = nn.TripletMarginLoss(margin=0.5)
for it in range(30):
    anchor = torch.randn(96, 8, 120)
    positive, negative = anchor + 0.2 * torch.randn_like(anchor), torch.randn(96, 8, 120)
    loss = criterion(net(anchor), net(positive), net(negative))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if it % 10 == 9:
        print(f"{it} loss {loss.item():.6f} norm {norms[-1]:.6f}")
print("digest", f"{sum(p.double().sum().item() for p in net.parameters()):.9f}", len(norms))
