import random
from functools import lru_cache

import torch
from torch import nn

RATE = 8000
CLIPS = 64
random.seed(0)
torch.manual_seed(0)

t = torch.arange(RATE * 2) / RATE
waves = torch.stack([torch.sin(2 * torch.pi * (180 + 25 * k) * t) + 0.1 * torch.randn(len(t)) for k in range(CLIPS)])
window = torch.hann_window(512)


@lru_cache(maxsize=None)
def spectrogram(clip, shift):
    wave = torch.roll(waves[clip], shift)
    spec = torch.stft(wave, 512, hop_length=96, window=window, return_complex=True)
    return spec.abs().log1p()


def make_batch(size):
    clips = [random.randrange(CLIPS) for _ in range(size)]
    specs = [spectrogram(c, random.randrange(0, RATE)) for c in clips]
    return torch.stack(specs), torch.tensor([c // 16 for c in clips])


class Tagger(nn.Module):
    def __init__(self, bins=257):
        super().__init__()
        self.conv = nn.Conv1d(bins, 128, 7, stride=4)
        self.gru = nn.GRU(128, 160, batch_first=True)
        self.out = nn.Linear(160, 4)

    def forward(self, spec):
        h = torch.relu(self.conv(spec)).transpose(1, 2)
        return self.out(self.gru(h)[0][:, -1])


model = Tagger()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1, 4001):
    x, y = make_batch(6)
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.4f}", flush=True)
