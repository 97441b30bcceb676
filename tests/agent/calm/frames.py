"""`locals()` of a training function stays the user's dict: hyperparameters at the top, a logger's at the bottom."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
kept_rows = []


def build(width=8, depth=2):
    made = locals()  # as `save_hyperparameters` does
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Linear(width, 1))
    print("built", sorted(made), made is sys._getframe().f_locals if sys.version_info < (3, 13) else True)
    return net, made


class Loop:
    def __init__(self, rate, steps):
        self.hp = dict(locals())
        self.hp.pop("self")
        self.held = locals()

    def train(self, net, poison):
        hp = locals()
        rate, steps = self.hp["rate"], self.hp["steps"]
        before = sorted(hp)
        optimizer = torch.optim.SGD(net.parameters(), rate)
        losses = []
        for step in range(steps):
            x, y = torch.randn(16, 8), torch.randn(16, 1)
            if poison and step == steps // 2:
                x[0] = float("nan")
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
            losses.append(str(loss.item()))
            kept_rows.append(torch.zeros(1000))
        print(before, sorted(hp), sorted(key for key in hp if hp[key] is None), sorted(self.held))
        hp["mine"] = 1
        optimizer.zero_grad()
        nn.functional.mse_loss(net(torch.randn(16, 8)), y).backward()
        optimizer.step()
        print("mine" in hp, sorted(hp))
        return losses


net, made = build()
print(sorted(made))
print(Loop(0.1, 200).train(net, poison=False)[-1])
print(Loop(0.1, 60).train(net, poison=True)[-1])


def counted(model):
    """A model with a memory of its own: a look at a NaN may not call it again."""
    calls = {"forward": 0, "loss": 0}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            calls["forward"] += 1
            return torch.log(self.inner(x) - 1e6)

    def objective(out):
        calls["loss"] += 1
        return out.mean()

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(5):
        optimizer.zero_grad()
        loss = objective(net(torch.randn(4, 8)))
        loss.backward()
        optimizer.step()
    print(calls, loss.item())


counted(nn.Linear(8, 1))
print(torch.rand(1).item().hex())
