"""Dispatch modes, function modes, fake tensors and the profiler see the program's own operations and no other."""

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

torch.manual_seed(0)
seen = []


class Ops(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Sequential(nn.Dropout(0.1), nn.Linear(8, 1))

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


net = Net()
optimizer = torch.optim.Adam(net.parameters(), 0.01)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8)


def epoch():
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return loss


def told(name):
    print(name, len(seen), *seen)
    seen.clear()


print(epoch().item().hex())
with Ops():
    epoch()
told("dispatched")
with Functions():
    epoch()
told("functions")
with FlopCounterMode(display=False) as flops:
    epoch()
print("flops", flops.get_total_flops())
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    epoch()
print("profiled", sorted((event.key, event.count) for event in profiler.key_averages() if "aten" in event.key))
with FakeTensorMode(allow_non_fake_inputs=True):
    fake = Net()
    shadow = torch.optim.SGD(fake.parameters(), 0.1)
    for _ in range(4):
        out = fake(torch.randn(8, 4)).mean()
        out.backward()
        shadow.step()
    print("fake", out, fake.a.weight.grad.shape)


class Logged(torch.Tensor):
    """A subclass whose every operation is its owner's business."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        seen.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


for _ in range(3):
    loss = nn.functional.mse_loss(net(torch.randn(8, 4).as_subclass(Logged)), torch.randn(8, 1))
    loss.backward()
    optimizer.step()
told("subclass")
print(epoch().item().hex())
