import random
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

random.seed(0)
SYLLABLES = ["ba", "ne", "ti", "ro", "su", "ka", "li", "mo", "den", "pra", "vel", "to"]
PIECES = {"".join(random.choice(SYLLABLES) for _ in range(random.randint(1, 3))): i + 2 for i in range(1500)}


class Patents(Dataset):
    def __init__(self, n=2400):
        self.texts = [
            " ".join("".join(random.choice(SYLLABLES) for _ in range(random.randint(2, 7))) for _ in range(180))
            for _ in range(n)
        ]

    def __len__(self):
        return len(self.texts)

    def tokenize(self, text):
        tokens = []
        for word in text.split():
            start = 0
            while start < len(word):
                for size in range(12, 1, -1):
                    piece = word[start:start + size]
                    if zlib.crc32(piece.encode()) % 3 and piece in PIECES:
                        tokens.append(PIECES[piece])
                        start += size
                        break
                else:
                    tokens.append(1)
                    start += 1
        return tokens

    def __getitem__(self, i):
        tokens = self.tokenize(self.texts[i])
        tokens = (tokens + [0] * 400)[:400]
        return torch.tensor(tokens), len(self.texts[i]) % 2


class PatentClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(1600, 32, padding_idx=0)
        self.out = nn.Linear(32, 2)

    def forward(self, tokens):
        return self.out(self.bag(tokens))


def main():
    loader = DataLoader(Patents(), batch_size=16, shuffle=True, num_workers=1)
    model = PatentClassifier()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(8):
        total = 0.0
        for tokens, label in loader:
            loss = nn.functional.cross_entropy(model(tokens), label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print("epoch", epoch, "loss", round(total / len(loader), 4), flush=True)


if __name__ == "__main__":
    main()
