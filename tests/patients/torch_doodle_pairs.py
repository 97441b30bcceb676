"""Semi-supervised doodles, consistency loss on unlabelled drawings (FixMatch in small)."""
import logging

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("doodles")

EPOCHS = 30
THRESHOLD = 0.9


def drawings(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 8, (n,), generator=g)
    x = torch.randn(n, 1, 28, 28, generator=g)
    x[torch.arange(n), 0, y * 3] += 1.5
    return TensorDataset(x, y)


def weak(x):
    return x + 0.05 * torch.randn_like(x)


def strong(x):
    x = x + 0.3 * torch.randn_like(x)
    return x * (torch.rand(len(x), 1, 28, 28) > 0.15)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 48, 3, stride=2), nn.ReLU(),
                                  nn.Conv2d(48, 48, 3, stride=2), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(48 * 25, 8)

    def forward(self, x):
        return self.head(self.body(x))


def consistency(model, u):
    with torch.no_grad():
        p, guess = model(weak(u)).softmax(1).max(1)
    return (F.cross_entropy(model(strong(u)), guess, reduction="none") * (p > THRESHOLD)).mean()


if __name__ == "__main__":
    torch.manual_seed(2)
    labelled = DataLoader(drawings(2400, 0), batch_size=16, shuffle=True)
    unlabelled = DataLoader(drawings(26000, 1), batch_size=48, shuffle=True)
    extra = iter(unlabelled)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    log.info("training for %d epochs of %d batches", EPOCHS, len(labelled))
    supervised, unsupervised = torch.zeros(()), torch.zeros(())
    for epoch in range(EPOCHS):
        for (u, _), (x, y) in zip(extra, labelled):
            supervised = F.cross_entropy(model(weak(x)), y)
            unsupervised = consistency(model, u)
            optimizer.zero_grad()
            (supervised + 0.5 * unsupervised).backward()
            optimizer.step()
        log.info("epoch %d  supervised %.4f  consistency %.4f", epoch + 1, supervised.item(), unsupervised.item())
    torch.save(model.state_dict(), "doodles.pt")
