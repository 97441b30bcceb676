"""A GAN, an optimizer for each layer, agents that take turns, optimizers made anew, optimizers fused with backward."""

import torch
from torch import nn

torch.manual_seed(0)


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 8), nn.ReLU(), nn.Linear(8, o))


def digits(*modules):
    return sum(p.double().sum().item() for m in modules for p in m.parameters()).hex()


generator, critic = mlp(2, 4), mlp(4, 1)
of_g, of_d = (torch.optim.Adam(m.parameters(), 0.01) for m in (generator, critic))
bce = nn.BCEWithLogitsLoss()
for _step in range(20):
    for _ in range(2):  # the critic steps more often
        real, fake = torch.randn(8, 4), generator(torch.randn(8, 2)).detach()
        of_d.zero_grad()
        (bce(critic(real), torch.ones(8, 1)) + bce(critic(fake), torch.zeros(8, 1))).backward()
        of_d.step()
    of_g.zero_grad()
    bce(critic(generator(torch.randn(8, 2))), torch.ones(8, 1)).backward()
    of_g.step()
print("gan", digits(generator, critic))

agents = [mlp(4, 2) for _ in range(64)]
theirs = [torch.optim.SGD(agent.parameters(), 0.1) for agent in agents]
for _ in range(5):
    for agent, optimizer in zip(agents, theirs, strict=True):
        optimizer.zero_grad()
        agent(torch.randn(4, 4)).square().mean().backward()
        optimizer.step()
print("agents", digits(*agents))

deep = nn.Sequential(*(nn.Linear(4, 4) for _ in range(12)))
layers = [torch.optim.SGD(layer.parameters(), 0.01) for layer in deep]
for _ in range(8):
    deep(torch.randn(4, 4)).square().mean().backward()
    for optimizer in layers:
        optimizer.step()
        optimizer.zero_grad()
print("layers", digits(deep))

model = mlp(4, 1)
for _ in range(8):
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    model(torch.randn(4, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("anew", digits(model))

own = {p: torch.optim.SGD([p], 0.01) for p in model.parameters()}


def in_backward(parameter):
    own[parameter].step()
    own[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(in_backward)
for _ in range(6):
    model(torch.randn(4, 4)).square().mean().backward()
print("in backward", digits(model))

both = mlp(4, 1)
slow, fast = torch.optim.SGD(both[0].parameters(), 0.01), torch.optim.SGD(both[2].parameters(), 0.1)
for step in range(20):
    both(torch.randn(4, 4)).square().mean().backward()
    (slow if step % 3 == 0 else fast).step()
    both.zero_grad()
print("alternating", digits(both))
