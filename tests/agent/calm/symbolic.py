"""torch.fx on classes that were trained: leaves stay leaves, graphs are the same."""

import torch
from torch import fx, nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.inner(self.norm(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(4), Block(4))
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.blocks(x))


x, y = torch.randn(8, 4), torch.randn(8, 1)


def train(model, shape=lambda out: out):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(shape(model(x)), y)
        loss.backward()
        optimizer.step()
    print(type(model).__name__, loss.item().hex())


# Library classes are trained on their own too: as whole models they are what an optimizer holds.
train(nn.Linear(4, 1))
train(nn.Sequential(nn.Linear(4, 1)))
train(Block(4), lambda out: out[:, :1])
net = Net()
train(net)


class Blocks(fx.Tracer):
    def is_leaf_module(self, module, name):
        return isinstance(module, Block) or super().is_leaf_module(module, name)


def nodes(graph):
    return [(node.op, getattr(node.target, "__name__", node.target)) for node in graph.nodes]


for tracer in (fx.Tracer(), Blocks()):
    graph = tracer.trace(net)
    print(nodes(graph))
    print(fx.GraphModule(net, graph)(x).double().sum().item().hex())
print(nodes(fx.symbolic_trace(Block(4)).graph))
print(nodes(fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4))).graph))
traced = fx.symbolic_trace(net)
print(traced.code)
train(traced)
