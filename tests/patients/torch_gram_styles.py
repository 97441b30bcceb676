"""Texture classifier. Keeps an eye on how far each batch's style is from the usual one."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def gram(maps):
    b, c, h, w = maps.shape
    flat = maps.reshape(b, c, h * w)
    return torch.bmm(flat, flat.transpose(1, 2)).mean(0) / (h * w)


class StyleBook:
    """Exponential mean of the gram matrices, one per block."""

    def __init__(self, decay=0.98):
        self.decay = decay
        self.mean = {}

    def visit(self, block, maps):
        g = gram(maps)
        old = self.mean.get(block, g)
        self.mean[block] = self.decay * old + (1 - self.decay) * g
        return (g - self.mean[block]).norm().item()


class TextureNet(nn.Module):
    def __init__(self, kinds, book):
        super().__init__()
        self.book = book
        self.b1 = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.b2 = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.BatchNorm2d(32), nn.ReLU())
        self.b3 = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU())
        self.out = nn.Linear(64, kinds)
        self.drift = {}

    def forward(self, x):
        for name in ("b1", "b2", "b3"):
            x = getattr(self, name)(x)
            if self.training and name == "b2":
                self.drift[name] = self.book.visit(name, x)
        return self.out(x.mean((2, 3)))


def make_batch(n, kinds, side, g):
    y = torch.randint(0, kinds, (n,), generator=g)
    base = torch.rand(n, 3, side, side, generator=g)
    freq = (y.float() + 1)[:, None] * torch.linspace(0, 6.28, side)[None]
    return base + 0.5 * torch.sin(freq)[:, None, None, :], y


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=3000)
    p.add_argument("--batch", type=int, default=12)
    p.add_argument("--side", type=int, default=48)
    p.add_argument("--lr", type=float, default=2e-3)
    a = p.parse_args()
    g = torch.Generator().manual_seed(5)
    model = TextureNet(6, StyleBook())
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr)
    t0 = time.time()
    for step in range(1, a.steps + 1):
        x, y = make_batch(a.batch, 6, a.side, g)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            d = " ".join(f"{k}={v:.3f}" for k, v in model.drift.items())
            print(f"[{time.time() - t0:6.1f}s] step {step} loss {loss.item():.4f} drift {d}", flush=True)


main()
