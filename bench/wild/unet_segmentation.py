"""Segmentation: a U-Net, a Dice loss over the whole batch, images and masks from a dataset with transforms."""

import torch
import torch.nn as nn

torch.manual_seed(0)


def double(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                         nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))  # fmt: skip


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.d1, self.d2, self.d3 = double(1, 16), double(16, 32), double(32, 64)
        self.pool = nn.MaxPool2d(2)
        self.u2, self.u1 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.c2, self.c1, self.out = double(64, 32), double(32, 16), nn.Conv2d(16, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(self.pool(a))
        c = self.d3(self.pool(b))
        x = self.c2(torch.cat([self.u2(c), b], 1))
        return self.out(self.c1(torch.cat([self.u1(x), a], 1)))


class Cells(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        image = torch.rand(1, 64, 64, generator=g)
        return (image - 0.5) / 0.25, (image > 0.6).float()


def dice(logits, masks):
    p = torch.sigmoid(logits)
    return 1 - (2 * (p * masks).sum() + 1) / (p.sum() + masks.sum() + 1)


model = UNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(2):
    for images, masks in torch.utils.data.DataLoader(Cells(), batch_size=16, shuffle=True):
        logits = model(images)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, masks) + dice(logits, masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.6f}")
print("digest", f"{sum(p.double().sum().item() for p in model.parameters()):.9f}")
