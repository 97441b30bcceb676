import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main(argv):
    epochs = int(argv[1]) if len(argv) > 1 else 12
    torch.manual_seed(0)
    caps = torch.randint(0, 2, (6000, 22)).float()
    edible = ((caps[:, 0] + caps[:, 5] * caps[:, 7]) > 0.5).long()
    loader = DataLoader(TensorDataset(caps, edible), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(22, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(epochs):
        wrong = 0
        for x, y in loader:
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            wrong += (out.argmax(1) != y).sum().item()
        print(f"epoch {epoch + 1}/{epochs} loss {loss.item():.4f} errors {wrong}", flush=True)
    torch.save(model.state_dict(), "mushroom.pt")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
