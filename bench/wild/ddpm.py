"""A denoising diffusion model: noise drawn in the loop, a small U-Net with skips, an average of the weights."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
T = 100
betas = torch.linspace(1e-4, 0.02, T)
alphas_cumprod = torch.cumprod(1 - betas, 0)


class UNet(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, 64), nn.SiLU(), nn.Linear(64, 2 * c))
        self.down1, self.down2 = nn.Conv2d(1, c, 3, padding=1), nn.Conv2d(c, 2 * c, 3, stride=2, padding=1)
        self.mid = nn.Sequential(nn.GroupNorm(8, 2 * c), nn.SiLU(), nn.Conv2d(2 * c, 2 * c, 3, padding=1))
        self.up = nn.ConvTranspose2d(2 * c, c, 4, stride=2, padding=1)
        self.out = nn.Conv2d(2 * c, 1, 3, padding=1)

    def forward(self, x, t):
        h1 = F.silu(self.down1(x))
        h2 = F.silu(self.down2(h1)) + self.time(t[:, None].float() / T)[:, :, None, None]
        h = self.up(h2 + self.mid(h2))
        return self.out(torch.cat([h, h1], dim=1))


model = UNet()
ema = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.randn(384, 1, 32, 32).clamp(-1, 1)),
    batch_size=96,
    shuffle=True,
    drop_last=True,
)
for epoch in range(2):
    for (x0,) in loader:
        t = torch.randint(0, T, (x0.shape[0],))
        noise = torch.randn_like(x0)
        a = alphas_cumprod[t][:, None, None, None]
        loss = F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for kept, new in zip(ema.parameters(), model.parameters()):
                kept.lerp_(new, 0.01)
        print(f"loss {loss.item():.6f}")
print("digest", f"{sum(p.double().sum().item() for p in (*model.parameters(), *ema.parameters())):.9f}")
