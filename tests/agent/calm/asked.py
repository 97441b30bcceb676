"""What a class of the user's own makes of being asked: samplers whose length draws, models that list themselves."""

import copy
import dataclasses
import gc
import weakref

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset

torch.manual_seed(0)
asked = []


def digits(*modules):
    return sum(p.double().sum().item() for m in modules for p in nn.Module.parameters(m)).hex()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class Listing(Net):
    """Gives its weights as a list, and counts who wants to know."""

    def parameters(self, recurse=True):
        asked.append("parameters")
        return list(super().parameters(recurse))

    def modules(self):
        asked.append("modules")
        return super().modules()

    def children(self):
        asked.append("children")
        return super().children()

    def buffers(self, recurse=True):
        asked.append("buffers")
        return super().buffers(recurse)


class Buckets(Sampler):
    """Makes its batches anew to know how many there are."""

    def batches(self):
        order = torch.randperm(24).tolist()
        return [order[i : i + 4] for i in range(0, 24, 4)]

    def __iter__(self):
        return iter(self.batches())

    def __len__(self):
        asked.append("length")
        return len(self.batches())


class Stream(IterableDataset):
    """Says it is shorter than it is: PyTorch warns once anybody has asked."""

    def __len__(self):
        return 2

    def __iter__(self):
        return iter(torch.randn(12, 4))


def train(net, batches, steps=8):
    optimizer = torch.optim.SGD(nn.Module.parameters(net), 0.05)
    for step in range(steps):
        optimizer.zero_grad()
        net(batches(step)).square().mean().backward()
        optimizer.step()
    net.eval()
    net.train()
    print(type(net).__name__, digits(net), len(asked), sorted(set(asked)))
    asked.clear()


train(Listing(), lambda step: torch.randn(8 * (step + 1), 4))

net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.05)
data = TensorDataset(torch.randn(24, 4))
for loader in (DataLoader(data, batch_sampler=Buckets()), DataLoader(data, sampler=Buckets(), batch_size=None)):
    for _ in range(3):
        for (x,) in loader:
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    print("sampled", digits(net), asked)
for x in DataLoader(Stream(), 4):
    net(x).mean().backward()
    optimizer.step()
print("streamed", digits(net), torch.randn(1).item())


class Lazy(dict):
    """Reads what it holds when it is asked for it, and knows by whom."""

    def __getitem__(self, key):
        asked.append("item")
        return super().__getitem__(key)

    def items(self):
        asked.append("items")
        return super().items()

    def values(self):
        asked.append("values")
        return super().values()


class Row(list):
    def __getitem__(self, at):
        asked.append("at")
        return super().__getitem__(at)

    def __iter__(self):
        asked.append("iter")
        return super().__iter__()


@dataclasses.dataclass
class Record:
    x: torch.Tensor

    def __getattribute__(self, name):
        if name == "x":
            asked.append("field")
        return object.__getattribute__(self, name)


class Proxy:
    """Says that it is what it stands for."""

    def __init__(self, of):
        self.of = of

    @property
    def __class__(self):
        asked.append("class")
        return type(self.of)


KINDS = {
    "lazy": (lambda x: Lazy(x=x), lambda given: given["x"]),
    "row": (lambda x: Row([x]), lambda given: given[0]),
    "record": (Record, lambda given: given.x),
    "proxy": (Proxy, lambda given: given.of),
}


class Open(Net):
    kind = "lazy"

    def forward(self, given):
        return super().forward(KINDS[self.kind][1](given))


for kind, (make, _open) in KINDS.items():
    net = Open()
    net.kind = kind
    train(net, lambda step, make=make: make(torch.randn(8 * (step + 1), 4)))


class Without(torch.optim.SGD):
    """An optimizer whose groups name no rate, and whose state is of a kind of its own."""

    class Kept(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            asked.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    def step(self, closure=None):  # noqa: ARG002 - the signature of all
        for p in self.param_groups[0]["params"]:
            p.data.sub_(p.grad, alpha=0.1)
            if p not in self.state:
                self.state[p]["kept"] = torch.zeros(2).as_subclass(self.Kept)


net = Net()
optimizer = Without(net.parameters(), 0.1)
del optimizer.param_groups[0]["lr"]
for _ in range(40):
    optimizer.zero_grad()
    net(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
print("without", digits(net), asked)


class Popping(Net):
    """Takes its inputs off a list, and lets each go before the next."""

    def forward(self, inputs):
        self.gone, total = [], 0
        while inputs:
            x = inputs.pop()
            ref = weakref.ref(x)
            with torch.no_grad():
                total = total + super().forward(x).sum()
            del x
            self.gone.append(ref() is None)
        return total * self.b.bias.sum()


gc.disable()
net = Popping()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(6):
    net([torch.randn(8 << step, 4) for _ in range(3)]).backward()
    optimizer.step()
    print("popped", net.gone)
print(sorted(vars(copy.deepcopy(net)))[-1])
