import os
import sys
import tempfile

import torch
import torch.nn as nn

torch.manual_seed(0)
LATENT, PIXELS = 32, 24 * 24
samples_dir = tempfile.mkdtemp()

G = nn.Sequential(nn.Linear(LATENT, 256), nn.ReLU(), nn.Linear(256, PIXELS), nn.Tanh())
D = nn.Sequential(nn.Linear(PIXELS, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1))
g_opt = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
d_opt = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()

yy, xx = torch.meshgrid(torch.linspace(-1, 1, 24), torch.linspace(-1, 1, 24), indexing="ij")


def faces(n):
    cx, r = torch.rand(n, 1, 1) * 0.6 - 0.3, torch.rand(n, 1, 1) * 0.3 + 0.4
    return ((xx - cx) ** 2 + yy ** 2 < r ** 2).float().view(n, -1) * 2 - 1


def look_at(epoch):
    with torch.no_grad():
        grid = G(torch.randn(16, LATENT))
    torch.save(grid, os.path.join(samples_dir, f"{epoch}.pt"))
    if grid.std() < 0.9:
        sys.exit()


for epoch in range(40):
    for step in range(150):
        real = faces(32)
        fake = G(torch.randn(32, LATENT))
        d_loss = bce(D(real), torch.ones(32, 1)) + bce(D(fake.detach()), torch.zeros(32, 1))
        d_opt.zero_grad()
        d_loss.backward()
        d_opt.step()
        g_loss = bce(D(fake), torch.ones(32, 1))
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
    print(f"epoch {epoch} d {d_loss.item():.3f} g {g_loss.item():.3f}", flush=True)
    if epoch > 0:
        look_at(epoch)
