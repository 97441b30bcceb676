"""A Wasserstein GAN with a gradient penalty: gradients of gradients, five steps of one network for one of the other."""

import torch
import torch.nn as nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64))
D = nn.Sequential(nn.Linear(64, 256), nn.LeakyReLU(0.2), nn.Linear(256, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-4, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=1e-4, betas=(0.0, 0.9))
real_data = torch.randn(2560, 64) * 0.5 + 1


def endless(loader):
    while True:
        yield from loader


batches = endless(torch.utils.data.DataLoader(real_data, batch_size=256, shuffle=True))
for it in range(6):
    for _ in range(5):
        real = next(batches)
        fake = G(torch.randn(len(real), 32)).detach()
        mixed = torch.lerp(real, fake, torch.rand(len(real), 1)).requires_grad_()
        (slope,) = torch.autograd.grad(D(mixed).sum(), mixed, create_graph=True)
        loss_d = D(fake).mean() - D(real).mean() + 10 * (slope.norm(2, dim=1) - 1).pow(2).mean()
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
    loss_g = -D(G(torch.randn(256, 32))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    print(f"{it} D {loss_d.item():.6f} G {loss_g.item():.6f}")
print("digest", f"{sum(p.double().sum().item() for net in (G, D) for p in net.parameters()):.9f}")
