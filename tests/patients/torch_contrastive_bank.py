import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

DIM = 2048


class Views(Dataset):
    def __init__(self, n=1600):
        g = torch.Generator().manual_seed(4)
        self.base = torch.randn(n, 256, generator=g)

    def __len__(self):
        return len(self.base)

    def __getitem__(self, i):
        x = self.base[i]
        return i, x + 0.1 * torch.randn_like(x), x * (torch.rand_like(x) > 0.1)


encoder = nn.Sequential(nn.Linear(256, 1024), nn.BatchNorm1d(1024), nn.ReLU(), nn.Linear(1024, DIM))
projector = nn.Linear(DIM, 64)
params = list(encoder.parameters()) + list(projector.parameters())
optim = torch.optim.SGD(params, lr=0.05, momentum=0.9)
loader = DataLoader(Views(), batch_size=64, shuffle=True, drop_last=True)
bank = {}

for epoch in range(150):
    losses = []
    for index, a, b in loader:
        fa, fb = encoder(a), encoder(b)
        za, zb = F.normalize(projector(fa), dim=1), F.normalize(projector(fb), dim=1)
        logits = za @ zb.T / 0.2
        loss = F.cross_entropy(logits, torch.arange(len(a)))
        optim.zero_grad()
        loss.backward()
        optim.step()
        losses.append(loss.item())
        for i, feature in zip(index, fa.detach()):
            bank[(epoch, int(i))] = feature.clone()
    print(f"[{epoch}] loss={sum(losses) / len(losses):.4f} bank={len(bank)}", flush=True)
