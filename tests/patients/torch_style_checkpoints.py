import os

import torch
import torch.nn as nn
import torch.nn.functional as F

ROOT = os.path.join(os.environ.get("PATIENT_DISK", "."), "checkpoints")
os.makedirs(ROOT, exist_ok=True)


class Stylizer(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.inp = nn.Conv2d(3, width, 9, padding=4)
        self.mid = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.out = nn.Conv2d(width, 3, 9, padding=4)

    def forward(self, x):
        h = F.relu(self.inp(x))
        for layer in self.mid:
            h = h + F.relu(layer(h))
        return torch.tanh(self.out(h))


def gram(x):
    b, c, h, w = x.shape
    f = x.reshape(b, c, h * w)
    return f @ f.transpose(1, 2) / (c * h * w)


torch.manual_seed(0)
model = Stylizer()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
style = gram(torch.rand(1, 3, 32, 32))

for step in range(1, 2001):
    content = torch.rand(2, 3, 32, 32) * 2 - 1
    result = model(content)
    loss = F.mse_loss(result, content) + 50 * F.mse_loss(gram(result), style.expand(2, -1, -1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        path = os.path.join(ROOT, f"step{step:05d}.pt")
        torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step}, path)
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
