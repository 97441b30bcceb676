"""What the user deletes is gone at once: the model, the batch, the loss and the optimizer, after any step."""

import gc
import sys
import weakref

import torch
from torch import nn

torch.manual_seed(0)
gc.disable()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(256, 256), nn.Linear(256, 1)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def train(steps):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for _ in range(steps):
        x = torch.randn(8, 256)
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [weakref.ref(one) for one in (net, net.a.weight, optimizer, x, loss)], sys.getrefcount(net)


for steps in (1, 2, 7, 8, 9, 31, 64, 65, 127, 128, 200, 512):
    refs, count = train(steps)
    print(steps, [ref() is None for ref in refs[1:2] + refs[3:]], count)
    gc.collect()
    print(steps, [ref() is None for ref in refs])
