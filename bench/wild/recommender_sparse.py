"""A recommender: sparse embeddings with an optimizer of their own, negatives drawn for each batch."""

import torch
import torch.nn as nn

torch.manual_seed(0)
users, items = nn.Embedding(5000, 32, sparse=True), nn.Embedding(8000, 32, sparse=True)
tower = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
sparse = torch.optim.SparseAdam([*users.parameters(), *items.parameters()], lr=1e-2)
dense = torch.optim.Adam(tower.parameters(), lr=1e-3)
pairs = torch.stack([torch.randint(0, 5000, (40_000,)), torch.randint(0, 8000, (40_000,))], 1)
for n, batch in enumerate(pairs.split(4000)):
    u = tower(users(batch[:, 0]))
    liked = (u * items(batch[:, 1])).sum(1)
    other = (u * items(torch.randint(0, 8000, (len(batch),)))).sum(1)
    loss = -nn.functional.logsigmoid(liked - other).mean()
    sparse.zero_grad()
    dense.zero_grad()
    loss.backward()
    sparse.step()
    dense.step()
    print(f"{n} loss {loss.item():.6f}")
print("digest", f"{sum(p.double().sum().item() for m in (users, items, tower) for p in m.parameters()):.9f}")
