"""torch.export and make_fx: the graphs hold the program's own operations and no other."""

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
x, y = torch.randn(16, 4), torch.randn(16, 1)


def step(x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    return loss


for _ in range(6):
    loss = step(x, y)
    optimizer.step()
print(loss.item().hex())

program = torch.export.export(net, (x,))
print([(node.op, str(node.target)) for node in program.graph.nodes])
print(program.module()(x).double().sum().item().hex())
batch = torch.export.Dim("batch", min=2)
print(torch.export.export(net, (x,), dynamic_shapes={"x": {0: batch}}).graph_signature.user_inputs)


def losses(x, y):
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    return [p.grad for p in net.parameters()]


net.zero_grad()
traced = make_fx(losses)(x, y)
print([(node.op, str(node.target)) for node in traced.graph.nodes])
net.zero_grad()
faked = make_fx(losses, tracing_mode="fake", _allow_non_fake_inputs=True)(x, y)
print([(node.op, str(node.target)) for node in faked.graph.nodes])
shaped = make_fx(lambda x: net(x), tracing_mode="symbolic", _allow_non_fake_inputs=True)(x)
print([(node.op, str(node.target)) for node in shaped.graph.nodes])
