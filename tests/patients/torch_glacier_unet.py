import torch
import torch.nn as nn
import torch.nn.functional as F


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class GlacierNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1, self.enc2, self.mid = conv(2, 12), conv(12, 24), conv(24, 24)
        self.dec2, self.dec1 = conv(48, 12), conv(24, 12)
        self.head = nn.Conv2d(12, 1, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool2d(e1, 2))
        m = self.mid(F.max_pool2d(e2, 2))
        d2 = self.dec2(torch.cat([F.interpolate(m, scale_factor=2), e2], 1))
        d1 = self.dec1(torch.cat([F.interpolate(d2, scale_factor=2), e1], 1))
        return self.head(d1)


def radar_scene(n, size=48):
    y, x = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    edge = torch.rand(n, 1, 1) - 0.5
    ice = (y + 0.3 * torch.sin(4 * x) > edge).float()
    image = torch.stack([ice + 0.4 * torch.randn_like(ice), x.expand_as(ice)], 1)
    return image, ice.unsqueeze(1)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = GlacierNet()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for it in range(1, 241):
        image, ice = radar_scene(6)
        loss = F.binary_cross_entropy_with_logits(model(image), ice)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % 10 == 0:
            print(f"it {it:4d} bce {loss.item():.4f}", flush=True)
