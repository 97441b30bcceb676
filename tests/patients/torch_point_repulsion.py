import torch
from torch import nn


class Layout(nn.Module):
    """Learns positions for graph nodes from their features, so that neighbours come close and others stay apart."""

    def __init__(self, features=16, dim=2):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, dim))

    def forward(self, x):
        return self.net(x)


def layout_loss(points, adjacency):
    first, second = torch.triu_indices(len(points), len(points), offset=1)
    diff = points[first] - points[second]
    distance = torch.sqrt((diff ** 2).sum(-1))
    linked = adjacency[first, second]
    pull = (linked * distance).sum() / linked.sum()
    push = torch.relu(1.0 - distance).mean()
    return pull + push


def graph(nodes=80):
    x = torch.randn(nodes, 16)
    close = torch.cdist(x, x) < 4.2
    return x, (close & ~torch.eye(nodes, dtype=torch.bool)).float()


def crawl(step):
    """A fresh neighbourhood; now and then a page is reached under two addresses."""
    x, adjacency = graph()
    if step % 1000 == 999:
        x[1] = x[0]
    return x, adjacency


torch.manual_seed(0)
model = Layout()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(2500):
    x, adjacency = crawl(step)
    loss = layout_loss(model(x), adjacency)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
