"""Models that return distributions, objects, functions and nests; losses that are left on modules."""

import dataclasses

import torch
from torch import nn
from torch.distributions import Categorical, Normal, kl_divergence

torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randn(64, 1)


class Policy(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.body, self.kind = nn.Linear(4, 2), kind
        self.penalty = None

    def forward(self, x):
        mean, width = self.body(x).chunk(2, 1)
        self.penalty = mean.square().mean()  # an auxiliary loss, left here for the loop to find
        return self.kind(mean, nn.functional.softplus(width) + 0.1)


class Guess:
    """An object of the user's own."""

    def __init__(self, mean, width):
        self.mean, self.width = mean, width

    def loss(self, y):
        return ((self.mean - y) / self.width).square().mean() + self.width.log().mean()


@dataclasses.dataclass
class Output:
    mean: torch.Tensor
    extra: dict


def as_function(mean, width):
    return lambda y: Normal(mean, width).log_prob(y).mean().neg()


WAYS = {
    "normal": (Normal, lambda out: -out.log_prob(y).mean() + kl_divergence(out, Normal(0.0, 1.0)).mean()),
    "drawn": (Normal, lambda out: (out.rsample() - y).square().mean()),
    "categorical": (
        lambda mean, width: Categorical(logits=torch.cat([mean, width], 1)),
        lambda out: -out.log_prob((y[:, 0] > 0).long()).mean(),
    ),
    "object": (Guess, lambda out: out.loss(y)),
    "function": (as_function, lambda out: out(y)),
    "dataclass": (lambda m, w: Output(m, {"w": [w]}), lambda out: (out.mean * out.extra["w"][0] - y).abs().mean()),
    "nest": (lambda m, w: {"a": (m, [w, None]), "b": Normal(m, w)}, lambda out: -out["b"].log_prob(out["a"][0]).mean()),
    "generator": (lambda m, w: (one for one in (m, w)), lambda out: sum(one.square().mean() for one in out)),
}
for name, (kind, objective) in WAYS.items():
    torch.manual_seed(1)
    net = Policy(kind)
    optimizer = torch.optim.Adam(net.parameters(), 0.05)
    for size in (16, 64, 64, 32, 64):  # calls that grow, and the small one of an epoch's end
        optimizer.zero_grad()
        kept, y = y, y[:size]
        loss = objective(net(x[:size])) + 0.1 * net.penalty
        y = kept
        loss.backward()
        optimizer.step()
    grads = [p.grad.double().sum().item().hex() for p in net.parameters()]
    print(name, loss.item().hex(), grads, sum(p.double().sum().item() for p in net.parameters()).hex())


class Experts(nn.Module):
    """A mixture whose balance is a loss kept on its parts, and features that a hook catches."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList(nn.Linear(4, 1) for _ in range(3))
        self.balance, self.seen = [], []

    def forward(self, x):
        share = self.gate(x).softmax(1)
        self.balance.append(share.mean(0).square().sum())
        return sum(share[:, i : i + 1] * expert(x) for i, expert in enumerate(self.experts))


net = Experts()
net.gate.register_forward_hook(lambda _m, _i, out: net.seen.append(out))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(6):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), y) + net.balance.pop() + 0.01 * net.seen.pop().square().mean()
    loss.backward()
    optimizer.step()
    print("experts", loss.item().hex(), len(net.balance), len(net.seen))
