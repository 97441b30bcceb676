import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class LineReader(nn.Module):
    def __init__(self, chars=30):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, (16, 5), padding=(0, 2))
        self.rnn = nn.GRU(16, 64, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(128, chars)

    def forward(self, x):
        h = torch.relu(self.conv(x)).squeeze(2).transpose(1, 2)
        return self.fc(self.rnn(h)[0])


def lines(n, width):
    codes = torch.randint(0, 30, (n, width))
    return (codes.float() / 30)[:, None, None, :].repeat(1, 1, 16, 1) + 0.05 * torch.randn(n, 1, 16, width), codes


@torch.no_grad()
def validate(model, loader):
    """Reads every line at three scales, as the paper does."""
    model.eval()
    right = total = 0
    for x, codes in loader:
        votes = sum(model(x * s).softmax(-1) for s in (0.9, 1.0, 1.1))
        right += (votes.argmax(-1) == codes).sum().item()
        total += codes.numel()
    model.train()
    return right / total


def main():
    torch.manual_seed(0)
    train = DataLoader(TensorDataset(*lines(480, 40)), batch_size=24, shuffle=True)
    val = DataLoader(TensorDataset(*lines(1500, 120)), batch_size=50)
    model = LineReader()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(5):
        for x, codes in train:
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), codes.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
        print(f"        validation {validate(model, val):.3f}", flush=True)


main()
