"""A graph network on one graph: no batch at all, masks, a sparse adjacency matrix."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
N, features, classes = 4000, 200, 7
edges = torch.randint(0, N, (2, 30_000))
adjacency = torch.sparse_coo_tensor(edges, torch.ones(edges.shape[1]), (N, N)).coalesce()
degree = torch.sparse.sum(adjacency, 1).to_dense().clamp(min=1)
x, y = torch.randn(N, features), torch.randint(0, classes, (N,))
train_mask = torch.rand(N) < 0.3


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(features, 128), nn.Linear(128, classes)

    def forward(self, x, adj):
        x = F.relu(torch.sparse.mm(adj, self.one(x)) / degree[:, None])
        x = F.dropout(x, 0.5, training=self.training)
        return torch.sparse.mm(adj, self.two(x)) / degree[:, None]


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(30):
    model.train()
    optimizer.zero_grad()
    out = model(x, adjacency)
    loss = F.cross_entropy(out[train_mask], y[train_mask])
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(x, adjacency).argmax(1) == y)[~train_mask].float().mean()
    if epoch % 10 == 9:
        print(f"epoch {epoch} loss {loss.item():.6f} accuracy {accuracy.item():.4f}")
print("digest", f"{sum(p.double().sum().item() for p in model.parameters()):.9f}")
