import json

import torch
from torch import nn


class PumpNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(26, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 3))

    def forward(self, x):
        return self.net(x)


def readings(n):
    x = torch.randn(n, 26)
    return x, (x[:, :3] + 0.2 * torch.randn(n, 3)).argmax(1)


torch.manual_seed(0)
model, history = PumpNet(), {"loss": [], "accuracy": [], "grad": []}
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
for step in range(9000):
    x, state = readings(64)
    logits = model(x)
    loss = nn.functional.cross_entropy(logits, state)
    optimizer.zero_grad()
    loss.backward()
    history["grad"].append(float(nn.utils.clip_grad_norm_(model.parameters(), 5.0)))
    optimizer.step()
    history["loss"].append(loss.item())
    history["accuracy"].append((logits.argmax(1) == state).float().mean().item())
    if step % 500 == 0:
        print(f"step {step} loss {loss.item():.4f} accuracy {history['accuracy'][-1]:.2f}", flush=True)

with open("history.json", "w") as f:
    json.dump(history, f)
