"""Gesture recognition from accelerometer sequences."""

import torch
from torch import nn

torch.manual_seed(2)


class GestureNet(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.hidden = hidden
        self.cell = nn.LSTMCell(6, hidden)
        self.head = nn.Linear(hidden, 12)

    def forward(self, x):
        h = x.new_zeros(len(x), self.hidden)
        c = x.new_zeros(len(x), self.hidden)
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
        return self.head(h)


model = GestureNet().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
moves = torch.randn(2048, 600, 6, device="cuda")
labels = torch.randint(12, (2048,), device="cuda")
for epoch in range(6):
    for start in range(0, len(moves), 64):
        loss = nn.functional.cross_entropy(model(moves[start : start + 64]), labels[start : start + 64])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item(), flush=True)
