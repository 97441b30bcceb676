import torch
from torch import nn


class TwoTower(nn.Module):
    def __init__(self, users, items, dim):
        super().__init__()
        self.users = nn.Embedding(users, dim)
        self.items = nn.Embedding(items, dim)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, user, item):
        return (self.users(user) * self.items(item)).sum(-1) + self.bias


def clicks(users, items, batches, size=1024):
    for _ in range(batches):
        user = torch.randint(users, (size,))
        item = torch.randint(items, (size,))
        yield user, item, ((user + item) % 7 == 0).float()


def main():
    torch.manual_seed(0)
    users, items, dim = 900_000, 500_000, 96
    model = TwoTower(users, items, dim)
    count = sum(p.numel() for p in model.parameters())
    print(f"model has {count / 1e6:.0f}M parameters", flush=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.BCEWithLogitsLoss()
    for step, (user, item, clicked) in enumerate(clicks(users, items, 2000)):
        loss = loss_fn(model(user, item), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}, loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
