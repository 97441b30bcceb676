"""Warnings and errors stand on the lines that they always stood on, whatever number of frames up that is."""

import sys
import traceback
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))

    def forward(self, x):
        for up in range(1, 8):
            warnings.warn(f"{up} up", stacklevel=up)
        return self.layer(x)


class Data(TensorDataset):
    def __getitem__(self, at):
        for up in range(2, 9):
            warnings.warn(f"sample, {up} up", stacklevel=up)
        return super().__getitem__(at)


def told(what):
    kept = [one for one in what if not one.filename.startswith(sys.prefix)]
    print(len(what), [(one.filename == __file__ and one.lineno, str(one.message)[:40]) for one in kept])


net = Net()
net.register_full_backward_hook(lambda *_: None)  # PyTorch warns within backward
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for (x,) in DataLoader(Data(torch.randn(4, 4)), 4):
            optimizer.zero_grad()
            net(x).mean().backward()
            optimizer.step()
        with torch.no_grad():
            net(x)
    told(caught)

# A list that holds itself, and a layer whose weights are made by its first call.
loop = []
loop.append(loop)


class Given(Net):
    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 1))

    def forward(self, x, *_others):
        return self.layer(x)


net = Given()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for size in (8, 16, 32, 64):
    net(torch.randn(size, 4), loop, {"of": loop}).mean().backward()
    optimizer.step()
print(sum(p.double().sum().item() for p in net.parameters()).hex())


def fails(thing):
    try:
        thing()
    except Exception as error:
        print(
            type(error).__name__, str(error)[:50], [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        )


fails(lambda: net.train("yes"))
fails(lambda: nn.utils.clip_grad_norm_(net.parameters(), 1.0, norm_type="none"))
fails(lambda: torch.amp.GradScaler("cpu").scale(None))
fails(lambda: net(torch.randn(2, 5)))
