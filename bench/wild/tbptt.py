"""Truncated backpropagation through time: one optimizer step for several windows, the state detached between them."""

import torch
import torch.nn as nn

torch.manual_seed(0)
cell, head = nn.LSTM(16, 128, batch_first=True), nn.Linear(128, 16)
parameters = [*cell.parameters(), *head.parameters()]
optimizer = torch.optim.RMSprop(parameters, lr=1e-3)
series = torch.randn(64, 400, 16).cumsum(1) * 0.1
for epoch in range(3):
    state = None
    optimizer.zero_grad()
    for n, begin in enumerate(range(0, 360, 40)):
        out, state = cell(series[:, begin : begin + 40], state)
        loss = (head(out) - series[:, begin + 1 : begin + 41]).pow(2).mean()
        loss.backward()
        state = tuple(s.detach() for s in state)
        if n % 3 == 2:
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad()
    print(f"epoch {epoch} loss {loss.item():.6f}")
print("digest", f"{sum(p.double().sum().item() for p in parameters):.9f}")
