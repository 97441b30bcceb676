import time

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.a, self.b = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.b(nn.functional.gelu(self.a(self.norm(x))))


torch.manual_seed(0)
model = nn.Sequential(*[Block(64) for _ in range(24)], nn.Linear(64, 8))
model = torch.compile(model, backend="aot_eager")
opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
x_all, y_all = torch.randn(2000, 64), torch.randint(0, 8, (2000,))

start = time.time()
for step in range(500):
    i = torch.randint(0, 2000, (40,))
    loss = nn.functional.cross_entropy(model(x_all[i]), y_all[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f} {time.time() - start:.1f}s", flush=True)
