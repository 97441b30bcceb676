"""A stream of shards from disk: an iterable dataset split among workers, gradient checkpointing, a model that fits."""

import os
import tempfile

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
folder = tempfile.mkdtemp()
for n in range(4):
    torch.save((torch.randn(128, 64), torch.randint(0, 5, (128,))), os.path.join(folder, f"{n}.pt"))


class Shards(torch.utils.data.IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        mine = sorted(os.listdir(folder))[info.id if info else 0 :: info.num_workers if info else 1]
        for name in mine:
            yield from zip(*torch.load(os.path.join(folder, name)))


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 256)
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 256), nn.GELU()) for _ in range(6)]
        )
        self.last = nn.Linear(256, 5)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return self.last(x)


if __name__ == "__main__":
    model = Deep()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    for epoch in range(2):
        for x, y in torch.utils.data.DataLoader(Shards(), batch_size=64, num_workers=2):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.6f}")
    print("digest", f"{sum(p.double().sum().item() for p in model.parameters()):.9f}")
