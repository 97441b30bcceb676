"""A mixture of experts whose gate leaves a balancing loss on the module."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Experts(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.gate = nn.Linear(d, n)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)) for _ in range(n)]
        )

    def forward(self, x):
        weights = F.softmax(self.gate(x), -1)
        top, chosen = weights.topk(2, -1)
        self.balance = weights.mean((0, 1)).pow(2).sum() * len(self.experts)
        out = torch.zeros_like(x)
        for n, expert in enumerate(self.experts):
            hit = (chosen == n).any(-1)
            if hit.any():
                share = (top * (chosen == n)).sum(-1)[hit].unsqueeze(-1)
                out[hit] = out[hit] + share * expert(x[hit])
        return x + out


model = nn.Sequential(nn.Embedding(200, 96), Experts(96, 4), Experts(96, 4), nn.Linear(96, 200))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(torch.randint(0, 200, (384, 33)), batch_size=64, shuffle=True)
for epoch in range(2):
    for tokens in loader:
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss = loss + 0.01 * sum(m.balance for m in model if isinstance(m, Experts))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{epoch} loss {loss.item():.6f}")
print("digest", f"{sum(p.double().sum().item() for p in model.parameters()):.9f}")
