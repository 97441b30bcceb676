"""Contrastive learning: every sample is compared with every other of its batch."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Pairs(torch.utils.data.Dataset):
    def __init__(self):
        self.images = torch.randn(512, 3, 24, 24)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        x = self.images[i]
        return x + 0.1 * torch.randn_like(x), x.flip(-1)


encoder = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 64))  # fmt: skip
optimizer = torch.optim.Adam(encoder.parameters(), lr=3e-4, weight_decay=1e-4)
for epoch in range(2):
    for one, other in torch.utils.data.DataLoader(Pairs(), batch_size=128, shuffle=True, drop_last=True):
        z = F.normalize(encoder(torch.cat([one, other])), dim=1)
        similarity = z @ z.T / 0.1
        similarity.fill_diagonal_(-1e9)
        wanted = torch.arange(len(z)).roll(len(one))
        loss = F.cross_entropy(similarity, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{epoch} loss {loss.item():.6f}")
print("digest", f"{sum(p.double().sum().item() for p in encoder.parameters()):.9f}")
