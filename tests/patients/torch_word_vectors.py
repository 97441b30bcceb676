import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class SkipGrams(IterableDataset):
    def __init__(self, vocab, pairs=2_000_000):
        self.vocab, self.pairs = vocab, pairs

    def __iter__(self):
        g = torch.Generator().manual_seed(0)
        for _ in range(self.pairs // 512):
            word = torch.randint(self.vocab, (512,), generator=g)
            yield word, (word + torch.randint(-3, 4, (512,), generator=g)) % self.vocab


class SkipGram(nn.Module):
    def __init__(self, vocab, dim=100):
        super().__init__()
        self.center = nn.Embedding(vocab, dim)
        self.context = nn.Embedding(vocab, dim)

    def forward(self, word, other):
        fake = other[torch.randperm(len(other))]
        c = self.center(word)
        good = (c * self.context(other)).sum(1)
        bad = (c * self.context(fake)).sum(1)
        return -(nn.functional.logsigmoid(good) + nn.functional.logsigmoid(-bad)).mean()


vocab = 220_000
model = SkipGram(vocab)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step, (word, other) in enumerate(DataLoader(SkipGrams(vocab), batch_size=None)):
    loss = model(word, other)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
