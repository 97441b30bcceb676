import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class StreetScenes(Dataset):
    def __init__(self, n=640, size=40):
        g = torch.Generator().manual_seed(3)
        self.pictures = torch.rand(n, size, size, generator=g)
        self.labels = torch.randint(0, 6, (n,), generator=g)

    def __len__(self):
        return len(self.pictures)

    def jitter(self, picture):
        """Brightness and contrast that change across the picture."""
        height, width = picture.shape
        gain, shift = random.uniform(0.8, 1.2), random.uniform(-0.1, 0.1)
        rows = picture.tolist()
        for y in range(height):
            for x in range(width):
                value = rows[y][x]
                for _ in range(6):
                    value = value * gain + shift * (x / width - y / height)
                    value = min(1.0, max(0.0, value))
                rows[y][x] = value
        return torch.tensor(rows)

    def __getitem__(self, i):
        picture = self.pictures[i]
        picture = self.jitter(picture)
        return picture.unsqueeze(0), self.labels[i]


if __name__ == "__main__":
    loader = DataLoader(StreetScenes(), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(8 * 81, 6))
    opt = torch.optim.Adam(model.parameters())
    for epoch in range(8):
        for pictures, labels in loader:
            loss = nn.functional.cross_entropy(model(pictures), labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
