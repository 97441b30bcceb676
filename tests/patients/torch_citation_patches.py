import random

import torch
from torch import nn
from torch.utils.data import DataLoader

N_PAPERS, N_FEATS, FANOUT = 20000, 96, 16


class PatchStore:
    """Neighbourhoods of papers. Sampling them takes a while, so a batch that was seen before is looked up."""

    def __init__(self, feats, links):
        self.feats, self.links = feats, links
        self.known = {}
        self.lookups = self.sampled = 0

    def _sample(self, nodes):
        rows = []
        for n in nodes.tolist():
            around = self.links[n]
            rows.append(random.choices(around, k=FANOUT))
        return self.feats[torch.tensor(rows)]

    def patch_for(self, nodes):
        self.lookups += 1
        if nodes in self.known:
            return self.known[nodes]
        self.sampled += 1
        patch = self._sample(nodes)
        self.known[nodes] = patch
        return patch


class SageLike(nn.Module):
    def __init__(self, store, classes):
        super().__init__()
        self.store = store
        self.own = nn.Linear(N_FEATS, 256)
        self.near = nn.Sequential(nn.Linear(N_FEATS, 256), nn.ReLU(), nn.Linear(256, 256))
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(256, classes))

    def forward(self, nodes):
        patch = self.store.patch_for(nodes)
        return self.head(self.own(self.store.feats[nodes]) + self.near(patch).max(1).values)


def build_graph(seed=11):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    topic = torch.randint(0, 7, (N_PAPERS,))
    feats = torch.randn(N_PAPERS, N_FEATS) + torch.randn(7, N_FEATS)[topic] * 0.4
    links = [[rng.randrange(N_PAPERS) for _ in range(rng.randint(3, 30))] for _ in range(N_PAPERS)]
    return feats, links, topic


if __name__ == "__main__":
    feats, links, topic = build_graph()
    store = PatchStore(feats, links)
    net = SageLike(store, 7)
    optim = torch.optim.Adam(net.parameters(), lr=3e-3)
    train_nodes = torch.arange(0, 12800)
    loader = DataLoader(train_nodes, batch_size=128)  # same order every time, so later epochs are quick

    for epoch in range(100):
        total = 0.0
        for nodes in loader:
            out = net(nodes)
            loss = nn.functional.cross_entropy(out, topic[nodes])
            optim.zero_grad()
            loss.backward()
            optim.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}  {store.lookups} lookups", flush=True)
