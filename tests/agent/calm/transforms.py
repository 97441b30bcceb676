"""torch.func, functional_call and forward AD on a class of model that an optimizer has trained."""

import torch
import torch.autograd.forward_ad as forward_ad
from torch import nn
from torch.func import functional_call, grad, hessian, jacrev, jvp, stack_module_state, vjp, vmap

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
x, y = torch.randn(16, 4), torch.randn(16, 1)
for _ in range(6):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
print(loss.item().hex())

weights = {name: value.detach() for name, value in net.named_parameters()}


def objective(weights, x, y):
    return nn.functional.mse_loss(functional_call(net, weights, (x,)), y)


def show(name, value):
    leaves = torch.utils._pytree.tree_leaves(value)
    print(name, [(tuple(one.shape), one.double().sum().item().hex()) for one in leaves])


show("grad", grad(objective)(weights, x, y))
show("per sample", vmap(grad(objective), in_dims=(None, 0, 0))(weights, x, y))
show("jacrev", jacrev(objective)(weights, x, y))
show("jvp", jvp(lambda x: net(x), (x,), (torch.ones_like(x),)))
show("vjp", vjp(lambda x: net(x), x)[1](torch.ones(16, 1)))
show("hessian", hessian(lambda row: net(row).sum())(x[0]))

nets = [Net() for _ in range(3)]
stacked, buffers = stack_module_state(nets)
show("ensemble", vmap(lambda p, b, x: functional_call(nets[0], (p, b), (x,)), (0, 0, None))(stacked, buffers, x))

with forward_ad.dual_level():
    dual = forward_ad.make_dual(x, torch.ones_like(x))
    show("tangent", forward_ad.unpack_dual(net(dual)).tangent)

for step in range(3):  # a loop whose gradients come from torch.func and whose step is the optimizer's
    grads = grad(objective)(dict(net.named_parameters()), x, y)
    for parameter, value in zip(net.parameters(), grads.values(), strict=True):
        parameter.grad = value
    optimizer.step()
    print("func step", step, objective(dict(net.named_parameters()), x, y).item().hex())
