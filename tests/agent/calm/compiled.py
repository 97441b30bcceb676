"""torch.compile with fullgraph: a mode that changes inside, a module made inside, clipping, no recompiling."""

import torch
from torch import nn
from torch._dynamo.utils import counters

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def forward(self, x):
        return self.layers(x)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
x, y = torch.randn(16, 4), torch.randn(16, 1)


def eager_step():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return loss.item().hex()


for _ in range(6):
    print(eager_step())


def attempt(name, function, *args):
    torch._dynamo.reset()
    counters.clear()
    try:
        for _ in range(12):
            result = torch.compile(function, backend="eager", fullgraph=True)(*args)
        kept = torch.utils._pytree.tree_leaves(result)
        digits = [one.double().sum().item().hex() for one in kept if isinstance(one, torch.Tensor)]
    except Exception as error:
        digits = [type(error).__name__, str(error).splitlines()[0]]
    print(name, digits, counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()))


@torch.no_grad()
def evaluate(x):
    net.eval()
    result = net(x)
    net.train()
    return result


def made_inside(x):
    return nn.ReLU()(net.layers[0](x))


def clipped(x):
    (net.layers[0](x) ** 2).mean()
    return nn.utils.clip_grad_norm_(net.parameters(), 1.0)


attempt("called", lambda x: net(x).sum() * 0, x)
attempt("eval", evaluate, x)
attempt("made inside", made_inside, x)
attempt("clipped", clipped, x)
attempt("mode", lambda x: net.eval().layers[0](x), x)
net.train()

# A step that is compiled, within a loop of the user's own.
torch._dynamo.reset()
counters.clear()
model = torch.compile(net, backend="eager", fullgraph=True)
net.eval()
for _ in range(12):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
print("training", loss.item().hex(), counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()))

# The whole step under the compiler: breaks are allowed, their number is not ours to change.
torch._dynamo.reset()
counters.clear()


@torch.compile(backend="eager")
def whole_step(x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return loss


for _ in range(12):
    loss = whole_step(x, y)
print("whole", loss.item().hex(), counters["stats"]["unique_graphs"], dict(counters["graph_break"]).__len__())
