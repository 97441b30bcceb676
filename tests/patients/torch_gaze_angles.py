"""Gaze estimation: regress a unit vector, minimise the angle to the true direction (in degrees)."""
import math
import dataclasses

import torch
from torch import nn


@dataclasses.dataclass
class Config:
    features: int = 24
    width: int = 96
    batch: int = 96
    lr: float = 1e-3
    epochs: int = 40
    samples: int = 24000
    seed: int = 8


class Gaze(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.skip = nn.Linear(cfg.features, 3)
        self.trunk = nn.Sequential(nn.Linear(cfg.features, cfg.width), nn.GELU(), nn.Linear(cfg.width, 3))

    def forward(self, x):
        return nn.functional.normalize(self.skip(x) + 0.1 * self.trunk(x), dim=-1)


class AngularError(nn.Module):
    def forward(self, pred, true):
        cosine = (pred * true).sum(-1)
        return torch.acos(cosine).mean() * 180 / math.pi


def eyes(cfg):
    g = torch.Generator().manual_seed(cfg.seed)
    landmarks = torch.randn(cfg.samples, cfg.features, generator=g)
    mix = torch.randn(cfg.features, 3, generator=g)
    return landmarks, nn.functional.normalize(landmarks @ mix, dim=-1)


def run(cfg):
    torch.manual_seed(cfg.seed)
    x, y = eyes(cfg)
    net, objective = Gaze(cfg), AngularError()
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        order = torch.randperm(len(x))
        degrees = []
        for part in order.split(cfg.batch):
            loss = objective(net(x[part]), y[part])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            degrees.append(loss.item())
        print(f"epoch {epoch:02d}  mean angle {sum(degrees) / len(degrees):.2f} deg", flush=True)


if __name__ == "__main__":
    run(Config())
