"""L-BFGS with its closure, over all data at once."""

import torch
import torch.nn as nn

torch.manual_seed(0)
t = torch.linspace(0, 12, 600)
data = torch.sin(t[None, :] + torch.rand(80, 1) * 6)


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.linear = nn.LSTM(1, 51, batch_first=True), nn.Linear(51, 1)

    def forward(self, x):
        return self.linear(self.lstm(x.unsqueeze(2))[0]).squeeze(2)


seq = Sequence().double()
data = data.double()
criterion = nn.MSELoss()
optimizer = torch.optim.LBFGS(seq.parameters(), lr=0.8, max_iter=5)
for i in range(3):

    def closure():
        optimizer.zero_grad()
        loss = criterion(seq(data[:, :-1]), data[:, 1:])
        loss.backward()
        return loss

    print(f"step {i} loss {optimizer.step(closure).item():.9f}")
print("digest", f"{sum(p.sum().item() for p in seq.parameters()):.9f}")
