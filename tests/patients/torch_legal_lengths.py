import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    def __init__(self, n=3000):
        rng = random.Random(0)
        self.lengths = [min(400, int(rng.lognormvariate(3.2, 0.9)) + 2) for _ in range(n)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        tokens = torch.randint(1, 900, (self.lengths[i],), generator=g)
        return tokens, int(tokens[0] > 450)


def collate(samples):
    tokens, labels = zip(*samples)
    return pad_sequence(tokens, batch_first=True), torch.tensor([len(t) for t in tokens]), torch.tensor(labels)


class Clerk(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(900, 48, padding_idx=0)
        self.lstm = nn.LSTM(48, 64, batch_first=True)
        self.fc = nn.Linear(64, 2)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.emb(tokens), lengths, batch_first=True, enforce_sorted=False)
        _, (h, _) = self.lstm(packed)
        return self.fc(h[-1])


if __name__ == "__main__":
    loader = DataLoader(Sentences(), batch_size=4, shuffle=True, collate_fn=collate)
    model = Clerk()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        running = 0.0
        for i, (tokens, lengths, labels) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(tokens, lengths), labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
            if i % 100 == 0:
                print(f"epoch {epoch} {i}/{len(loader)} loss {running / i:.4f}", flush=True)
