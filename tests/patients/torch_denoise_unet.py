import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader


class NoisyPatches(Dataset):
    """Clean gradients with gaussian noise on top."""

    def __init__(self, count=2000, size=32):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        a, b = torch.rand(2, generator=g)
        line = torch.linspace(0, 1, self.size)
        clean = (a * line[None, :] + b * line[:, None]).unsqueeze(0)
        return clean + 0.2 * torch.randn(1, self.size, self.size, generator=g), clean


class SmallUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = nn.Conv2d(1, 12, 3, padding=1)
        self.down2 = nn.Conv2d(12, 24, 3, padding=1)
        self.up1 = nn.ConvTranspose2d(24, 12, 2, stride=2)
        self.out = nn.Conv2d(24, 1, 3, padding=1)

    def forward(self, x):
        d1 = F.relu(self.down1(x))
        d2 = F.relu(self.down2(F.max_pool2d(d1, 2)))
        return self.out(torch.cat([self.up1(d2), d1], dim=1))


def train():
    device = torch.device("cpu")
    loader = DataLoader(NoisyPatches(), batch_size=10, shuffle=True)
    model = SmallUNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    history = []
    for epoch in range(20):
        for noisy, clean in loader:
            noisy, clean = noisy.to(device), clean.to(device)
            restored = model(noisy)
            loss = F.l1_loss(restored, clean) + 0.1 * F.mse_loss(restored, clean)
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
            optimizer.step()
            history.append(loss)
        recent = torch.stack(history[-len(loader):]).mean()
        print("epoch", epoch, "loss", float(recent), flush=True)
    return history


train()
