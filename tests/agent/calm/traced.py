"""torch.jit.trace and script of a trained model, and what add_graph of TensorBoard does."""

import warnings

import torch
from torch import nn

warnings.simplefilter("error", torch.jit.TracerWarning)
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
for _ in range(6):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
print(loss.item().hex())

warnings.filterwarnings("ignore", category=DeprecationWarning)
traced = torch.jit.trace(net, x)
print(traced.graph)
print(traced(x).double().sum().item().hex())
scripted = torch.jit.script(net)
print(scripted.code)
print(scripted(x).double().sum().item().hex())
print(torch.jit.freeze(scripted.eval()).graph)
graph, out = torch.jit._get_trace_graph(net, (x,))
print(graph)

# Trained after the tracing too.
optimizer = torch.optim.SGD(traced.parameters(), 0.1)
for _ in range(6):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(traced(x), y)
    loss.backward()
    optimizer.step()
print(loss.item().hex())
