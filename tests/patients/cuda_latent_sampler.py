"""Variational autoencoder for seismic traces."""

import time

import torch
from torch import nn

device = torch.device("cuda")


class TraceVAE(nn.Module):
    def __init__(self, width=4096, latent=128):
        super().__init__()
        self.down = nn.Sequential(nn.Linear(2048, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.mu = nn.Linear(width, latent)
        self.logvar = nn.Linear(width, latent)
        self.up = nn.Sequential(nn.Linear(latent, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 2048))

    def forward(self, x):
        h = self.down(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.up(z), mu, logvar


def objective(recon, x, mu, logvar):
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return nn.functional.mse_loss(recon, x), kl


def main():
    torch.manual_seed(4)
    model = TraceVAE().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    traces = torch.randn(60_000, 2048)
    for epoch in range(40):
        epoch_kl = torch.zeros((), device=device)
        order = torch.randperm(len(traces))
        for start in range(0, len(order), 8192):
            x = traces[order[start : start + 8192]].to(device)
            recon, mu, logvar = model(x)
            mse, kl = objective(recon, x, mu, logvar)
            (mse + 1e-3 * kl).backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch} mse {mse.item():.4f} kl {kl.item():.3f}", flush=True)
        time.sleep(0.05)
    totals = torch.zeros((), device=device)
    for step in range(4000):
        x = traces[torch.randint(len(traces), (8192,))].to(device)
        recon, mu, logvar = model(x)
        mse, kl = objective(recon, x, mu, logvar)
        loss = mse + 1e-3 * kl
        totals = totals + objective(*model(x)[:1], x, mu.detach(), logvar.detach())[0]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(f"refine {step} loss {loss.item():.4f} mean {totals.item() / (step + 1):.4f}", flush=True)


if __name__ == "__main__":
    main()
