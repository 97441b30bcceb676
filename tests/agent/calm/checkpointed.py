"""Activation checkpointing, offloaded saved tensors, custom functions: every forward runs as often as it would."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

torch.manual_seed(0)
calls = {"block": 0, "packed": 0, "own": 0}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.drop = nn.Linear(8, 8), nn.Dropout(0.2)

    def forward(self, x):
        calls["block"] += 1
        return x + self.drop(torch.relu(self.inner(x)))


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        calls["own"] += 1
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        calls["own"] += 1
        return grad * ctx.saved_tensors[0].cos()


class Net(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.blocks, self.head, self.reentrant = nn.ModuleList(Block() for _ in range(3)), nn.Linear(8, 1), reentrant

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(Own.apply(x))


def pack(tensor):
    calls["packed"] += 1
    return tensor.numpy() if not tensor.requires_grad else tensor


def unpack(held):
    calls["packed"] += 1
    return torch.from_numpy(held) if not isinstance(held, torch.Tensor) else held


x, y = torch.randn(16, 8), torch.randn(16, 1)
for reentrant in (False, True):
    net = Net(reentrant)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x.requires_grad_(reentrant)), y)
        loss.backward()
        optimizer.step()
        print(reentrant, loss.item().hex(), calls)

stack = nn.Sequential(Block(), Block(), Block(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(stack.parameters(), 0.1)
for _ in range(4):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(checkpoint_sequential(stack, 2, x.detach(), use_reentrant=False), y)
    loss.backward()
    optimizer.step()
print("sequential", loss.item().hex(), calls)

for _ in range(4):
    optimizer.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = nn.functional.mse_loss(stack(x.detach()), y)
    loss.backward()
    optimizer.step()
print("hooks", loss.item().hex(), calls)
with torch.autograd.graph.save_on_cpu():
    nn.functional.mse_loss(stack(x.detach()), y).backward()
print("offloaded", sum(p.grad.double().sum().item() for p in stack.parameters()).hex(), calls)
