import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class CaptionDataset(Dataset):
    def __init__(self, n=6000, seq_len=24, vocab=4000):
        rng = np.random.default_rng(7)
        self.tokens = rng.integers(1, vocab, size=(n, seq_len))
        self.labels = (self.tokens[:, :6].sum(1) % 5).astype(np.int64)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return torch.from_numpy(self.tokens[i]), int(self.labels[i])


class CaptionEncoder(nn.Module):
    def __init__(self, vocab=4000, dim=128, classes=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, 192, batch_first=True)
        self.head = nn.Linear(192, classes)

    def forward(self, tokens):
        states, last = self.rnn(self.embed(tokens))
        return self.head(last[-1]), states


def run(epochs=40):
    torch.manual_seed(0)
    loader = DataLoader(CaptionDataset(), batch_size=64, shuffle=True)
    model = CaptionEncoder()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    embeddings, targets = [], []
    for epoch in range(epochs):
        total = 0.0
        for tokens, y in loader:
            logits, states = model(tokens)
            loss = criterion(logits, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            embeddings.append(states.detach().clone())
            targets.append(y)
        print(f"epoch {epoch + 1}/{epochs}  loss {total / len(loader):.4f}", flush=True)
    torch.save((torch.cat(embeddings), torch.cat(targets)), "embeddings.pt")


if __name__ == "__main__":
    run()
