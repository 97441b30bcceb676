"""EMA and SWA, tied weights, hooks, parametrizations, meta weights, frozen parts, deep copies and pickles."""

import copy
import inspect
import io
import pickle

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

torch.manual_seed(0)


class Tied(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids, scale: float = 1.0):
        return self.head(self.norm(self.embed(ids)).mul(scale))


def digits(*modules):
    return sum(p.double().sum().item() for m in modules for p in m.parameters()).hex()


net = Tied()
average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.AdamW(net.parameters(), 0.01)
ids = torch.randint(0, 16, (32,))
caught = []
net.embed.register_forward_hook(lambda _m, _i, out: caught.append(out))
net.register_forward_pre_hook(lambda _m, args: (args[0].roll(1), *args[1:]))
net.register_full_backward_hook(lambda _m, _i, grads: caught.append(grads[0]))
for _ in range(6):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(ids, scale=0.5), ids) + caught[-1].square().mean()
    loss.backward()
    optimizer.step()
    average.update_parameters(net)
    print(loss.item().hex(), len(caught))
print("ema", digits(average), net.head.weight is net.embed.weight)
update_bn([ids.clone() for _ in range(2)], average)
average.eval()
print("averaged", average(ids).double().sum().item().hex())

twin = copy.deepcopy(net)
print("copied", digits(twin), type(twin) is type(net), sorted(vars(twin)))
file = io.BytesIO()
torch.save(net.state_dict(), file)
print("saved", list(net.state_dict()), sorted(vars(net)), sorted(optimizer.state_dict()["param_groups"][0]))
plain = nn.Sequential(nn.Linear(4, 2))
torch.optim.SGD(plain.parameters(), 0.1).step()
again = pickle.loads(pickle.dumps(plain))
print("pickled", len(pickle.dumps(plain)), digits(again), pickle.loads(pickle.dumps(Tied)) is Tied)
print(inspect.signature(Tied.forward), inspect.signature(Tied.__call__), inspect.signature(net))
print(inspect.signature(nn.Module.train), inspect.signature(torch.Tensor.backward), inspect.signature(nn.Module))


class Later(Tied):
    """Made after its parent was trained, with a call of its own."""

    __slots__ = ()

    def __call__(self, ids):
        return super().__call__(ids, scale=2.0)


class Meta(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.made_by = "meta"
        return made


class WithMeta(nn.Linear, metaclass=Meta):
    pass


later, strange = Later(), WithMeta(4, 1)
for model, data in ((later, ids), (strange, torch.randn(8, 4))):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(4):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
    print(type(model).__name__, digits(model))
print(strange.made_by, sorted(name for name in vars(Later) if not name.startswith("_")))

with torch.device("meta"):
    empty = Tied()
optimizer = torch.optim.SGD(empty.parameters(), 0.1)
for _ in range(3):
    empty(torch.zeros(4, dtype=torch.long, device="meta")).mean().backward()
    optimizer.step()
print("meta", empty.embed.weight.grad.shape, empty.embed.weight.is_meta)
empty.to_empty(device="cpu").load_state_dict(net.state_dict())
print("filled", digits(empty))

normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 1))
frozen = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), normed)
optimizer = torch.optim.SGD([p for p in frozen.parameters() if p.requires_grad], 0.1)
for _ in range(4):
    optimizer.zero_grad()
    frozen(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
print("parametrized", digits(frozen))
