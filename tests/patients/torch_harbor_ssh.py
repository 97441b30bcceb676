import torch
import torch.nn as nn


class ShipTracker(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.gru = nn.GRU(4, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 2)

    def forward(self, track):
        out, _ = self.gru(track)
        return self.head(out)


def tracks(n, length=40):
    speed = torch.rand(n, 1, 1) * 0.5 + 0.2
    turn = torch.randn(n, length, 1) * 0.1
    heading = turn.cumsum(1)
    step = torch.cat([heading.cos(), heading.sin()], -1) * speed
    position = step.cumsum(1) / 10
    return torch.cat([position, step], -1), position + step / 10


model = ShipTracker()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
best = float("inf")
for epoch in range(1, 2001):
    running = 0.0
    for _ in range(40):
        seen, following = tracks(32)
        loss = nn.functional.mse_loss(model(seen), following)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running += loss.item() / 40
    best = min(best, running)
    print(f"epoch {epoch:4d}  loss {running:.6f}  best {best:.6f}", flush=True)
