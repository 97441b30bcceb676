import torch
import torch.nn as nn
import torch.nn.functional as F


class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.total = 0
        self.count = 0

    def update(self, value, n=1):
        self.total = self.total + value * n
        self.count += n

    @property
    def avg(self):
        return float(self.total) / max(1, self.count)


class VAE(nn.Module):
    def __init__(self, d=784, h=400, z=16):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU())
        self.mu, self.logvar = nn.Linear(h, z), nn.Linear(h, z)
        self.dec = nn.Sequential(nn.Linear(z, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, d))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h).clamp(-8, 8)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def elbo_terms(model, x):
    rec, mu, logvar = model(x)
    rec_loss = F.binary_cross_entropy_with_logits(rec, x, reduction='mean') * x.size(1)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec_loss, kl


def digits(n):
    protos = (torch.rand(10, 784, generator=torch.Generator().manual_seed(2)) > 0.7).float()
    picks = torch.randint(0, 10, (n,))
    flips = (torch.rand(n, 784) < 0.05).float()
    return (protos[picks] - flips).abs()


if __name__ == '__main__':
    torch.manual_seed(0)
    train_x, val_x = digits(4000), digits(4000)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    meters = {'rec': Meter(), 'kl': Meter(), 'rec_val': Meter()}
    batch, beta = 128, 4.0
    for epoch in range(1, 41):
        for i in range(0, len(train_x), batch):
            rec, kl = elbo_terms(model, train_x[i:i + batch])
            opt.zero_grad()
            (rec + beta * kl).backward()
            opt.step()
            meters['rec'].update(rec.item(), batch)
            meters['kl'].update(kl.item(), batch)
            rec_val, _ = elbo_terms(model, val_x[i:i + batch])
            meters['rec_val'].update(rec_val, batch)
        print(f"epoch {epoch}: " + '  '.join(f'{k} {m.avg:.2f}' for k, m in meters.items()), flush=True)
