"""Online fault detector for turbine vibration: a recurrent encoder and a small head that keeps learning."""
import math

import torch
from torch import nn


class VibrationStream:
    def __init__(self, channels=12, window=20, lanes=8, seed=9):
        self.g = torch.Generator().manual_seed(seed)
        self.channels, self.window, self.lanes = channels, window, lanes
        self.clock = 0

    def __iter__(self):
        while True:
            t = torch.arange(self.clock, self.clock + self.window) / 50
            base = torch.sin(2 * math.pi * t)[None, :, None]
            signal = base + 0.3 * torch.randn(self.lanes, self.window, self.channels, generator=self.g)
            fault = (torch.rand(self.lanes, generator=self.g) < 0.2).float()
            signal = signal + fault[:, None, None] * 0.8
            self.clock += self.window
            yield signal, fault


class Encoder(nn.Module):
    def __init__(self, channels, hidden=64):
        super().__init__()
        self.rnn = nn.GRU(channels, hidden, batch_first=True)

    def forward(self, x, state=None):
        out, state = self.rnn(x, state)
        return out[:, -1], state


encoder = Encoder(12)
head = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
bce = nn.BCEWithLogitsLoss()

state = None
smooth = None
for number, (window, fault) in enumerate(VibrationStream()):
    features, state = encoder(window, state)
    for _ in range(3):
        logit = head(features.detach()).squeeze(1)
        loss = bce(logit, fault)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    smooth = loss.item() if smooth is None else 0.98 * smooth + 0.02 * loss.item()
    if number % 100 == 0:
        print(f"window {number}  loss {smooth:.4f}", flush=True)
    if number == 20000:
        break
