import argparse

import torch
import torch._dynamo
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch._dynamo.config.cache_size_limit = 400


def make_objective(gamma):
    def focal(logits, target):
        logp = torch.log_softmax(logits, dim=1)
        pt = logp.gather(1, target[:, None]).squeeze(1)
        return (-(1 - pt.exp()).clamp(min=1e-6) ** gamma * pt).mean()

    return focal


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--gamma", type=float, default=2.0)
    args = p.parse_args()

    torch.manual_seed(0)
    x = torch.randn(960, 30)
    y = (x[:, 0] > 1.2).long()
    loader = DataLoader(TensorDataset(x, y), batch_size=48, shuffle=True)
    net = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 2))
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    steps, done = args.epochs * len(loader), 0
    for epoch in range(args.epochs):
        for x, y in loader:
            gamma = args.gamma * (1 - done / steps)
            objective = torch.compile(make_objective(gamma), backend="aot_eager")
            loss = objective(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            done += 1
        print(f"epoch {epoch} gamma {gamma:.2f} loss {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
