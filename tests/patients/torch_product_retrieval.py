import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

PRODUCTS, FEATURES, DIM = 24_000, 96, 64


def load():
    g = torch.Generator().manual_seed(0)
    family = torch.randint(0, 200, (PRODUCTS,), generator=g)
    centers = torch.randn(200, FEATURES, generator=g)
    return centers[family] + 0.5 * torch.randn(PRODUCTS, FEATURES, generator=g), family


@torch.no_grad()
def recall_at_one(model, x, family):
    model.eval()
    gallery = F.normalize(torch.cat([model(part) for part in x.split(2048)]), dim=1)
    similarity = torch.matmul(gallery, gallery.t())
    similarity.fill_diagonal_(-1)
    nearest = similarity.argmax(dim=1)
    model.train()
    return (family[nearest] == family).float().mean().item()


def main(epochs=12, evaluate_every=3):
    torch.manual_seed(0)
    x, family = load()
    model = nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, DIM))
    proxies = nn.Parameter(torch.randn(200, DIM))
    optimizer = torch.optim.AdamW([*model.parameters(), proxies], lr=1e-3)
    loader = DataLoader(TensorDataset(x, family), batch_size=64, shuffle=True, drop_last=True)
    for epoch in range(1, epochs + 1):
        total = 0.0
        for features, target in loader:
            scores = F.normalize(model(features), dim=1) @ F.normalize(proxies, dim=1).t()
            loss = F.cross_entropy(scores * 16, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch:2d} loss {total / len(loader):.4f}", flush=True)
        if epoch % evaluate_every == 0:
            print(f"         recall@1 {recall_at_one(model, x, family):.3f}", flush=True)


if __name__ == "__main__":
    main()
