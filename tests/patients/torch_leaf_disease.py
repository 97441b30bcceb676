import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class LeafPictures(Dataset):
    classes = ("healthy", "rust", "scab", "mildew")

    def __init__(self, n=4000, side=112):
        self.n, self.side = n, side

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        label = i % len(self.classes)
        picture = torch.full((3, self.side, self.side), label / 4)
        picture[:, ::8, :] += 0.1
        return picture, label


class LeafNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.block1 = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2))
        self.block2 = nn.Sequential(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2))
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = self.block1(x)
        x = self.block2(x)
        return self.fc(x.mean(dim=(2, 3)))


def train(epochs):
    model = LeafNet(len(LeafPictures.classes))
    loader = DataLoader(LeafPictures(), batch_size=512, shuffle=True)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    print(f"{len(loader)} batches per epoch", flush=True)
    for epoch in range(epochs):
        for i, (pictures, labels) in enumerate(loader):
            optimizer.zero_grad()
            logits = model(pictures)
            loss = criterion(logits, labels)
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch + 1}, batch {i}, loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    train(epochs=10)
