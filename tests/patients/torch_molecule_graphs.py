import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

ELEMENTS = {"H": 0, "C": 1, "N": 2, "O": 3, "F": 4, "S": 5}


class Molecules(Dataset):
    def __init__(self, count=2500):
        rng = random.Random(3)
        self.items = [[rng.choice("HHHHCCCNOFS") for _ in range(rng.randint(5, 20))] for _ in range(count)]
        self.items[1730][2] = "Cl"

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        atoms = self.items[i]
        numbers = [ELEMENTS[a] for a in atoms]
        padded = numbers + [len(ELEMENTS)] * (20 - len(numbers))
        bonds = (torch.rand(20, 20) < 0.15).float()
        return torch.tensor(padded), (bonds + bonds.T).clamp(max=1), float(sum(numbers))


class GraphNet(nn.Module):
    def __init__(self, dim=48, rounds=3):
        super().__init__()
        self.embed = nn.Embedding(len(ELEMENTS) + 1, dim)
        self.updates = nn.ModuleList(nn.Linear(2 * dim, dim) for _ in range(rounds))
        self.readout = nn.Linear(dim, 1)

    def forward(self, atoms, bonds):
        h = self.embed(atoms)
        for update in self.updates:
            h = torch.relu(update(torch.cat([h, bonds @ h], -1)))
        return self.readout(h.mean(1)).squeeze(1)


def main():
    torch.manual_seed(0)
    loader = DataLoader(Molecules(), batch_size=10)
    model = GraphNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(10):
        for step, (atoms, bonds, energy) in enumerate(loader):
            loss = nn.functional.l1_loss(model(atoms, bonds), energy.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} mae {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
