"""Double backward, gradients of gradients, LBFGS closures, losses of many shapes, backward of several."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
x, y = torch.randn(16, 4), torch.randn(16, 1)

optimizer = torch.optim.SGD(net.parameters(), 0.05)
for _ in range(6):  # a gradient penalty
    optimizer.zero_grad()
    points = x.clone().requires_grad_()
    out = net(points)
    (slope,) = torch.autograd.grad(out.sum(), points, create_graph=True)
    loss = nn.functional.mse_loss(out, y) + (slope.norm(dim=1) - 1).square().mean()
    loss.backward()
    optimizer.step()
    print("penalty", loss.item().hex())

calls = []
solver = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=5)


def closure():
    calls.append(1)
    solver.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    return loss


for _ in range(4):
    print("lbfgs", solver.step(closure).item().hex(), len(calls))

optimizer = torch.optim.Adam(net.parameters(), 0.01)
for _ in range(4):  # retained graphs, several losses, a loss that is a vector, autograd's own function
    optimizer.zero_grad()
    out = net(x)
    first, second = nn.functional.mse_loss(out, y), out.abs().mean()
    first.backward(retain_graph=True)
    second.backward(retain_graph=True)
    out.backward(torch.ones_like(out) * 0.01, retain_graph=True)
    torch.autograd.backward([first, second])
    optimizer.step()
    print("several", sum(p.grad.double().sum().item() for p in net.parameters()).hex())

for _ in range(4):  # complex, half precision and integer-like corners
    optimizer.zero_grad()
    spectrum = torch.fft.fft(net(x).squeeze(1))
    loss = (spectrum * spectrum.conj()).real.mean()
    loss.backward()
    optimizer.step()
    print("complex", loss.item().hex())
(net(x).mean().bfloat16() * 3).backward()
optimizer.step()
net(x).mean().reshape(1, 1).backward()
optimizer.step()
net(x).sum().neg().backward()
print(sum(p.double().sum().item() for p in net.parameters()).hex())

with torch.autograd.detect_anomaly(check_nan=True):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    print("anomaly", loss.item().hex())

net[0].weight.register_hook(lambda grad: grad * 2)
loss = nn.functional.mse_loss(net(x), y)
loss.backward(create_graph=True)
again = sum(p.grad.square().sum() for p in net.parameters())
print("second", [g.double().sum().item().hex() for g in torch.autograd.grad(again, list(net.parameters()))])
