import torch
import torch.nn as nn


def make_net():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))


torch.manual_seed(0)
nets = [make_net() for _ in range(400)]
params = [p for net in nets for p in net.parameters()]
optimizer = torch.optim.Adam(params, lr=2e-3, foreach=False)

x_all = torch.rand(4000, 4) * 2 - 1
y_all = (x_all.prod(1) + x_all.sum(1)).unsqueeze(1)

for step in range(1, 121):
    pick = torch.randint(0, len(x_all), (16,))
    x, y = x_all[pick], y_all[pick]
    loss = torch.zeros(())
    for net in nets:
        prediction = net(x)
        loss = loss + ((prediction - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step}: mean loss {loss.item() / len(nets):.4f}", flush=True)

with torch.no_grad():
    spread = torch.stack([net(x_all[:64]) for net in nets]).std(0).mean()
print(f"spread between members {spread:.4f}")
