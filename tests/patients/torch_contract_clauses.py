import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

PAD = 0


class Contracts(Dataset):
    def __init__(self, n=4000):
        g = torch.Generator().manual_seed(12)
        self.lengths = torch.randint(60, 240, (n,), generator=g).tolist()
        self.lengths[2411] = 9200
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randint(1, 3000, (self.lengths[i],), generator=g), i % 3


def collate(samples):
    tokens, labels = zip(*samples)
    padded = nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=PAD)
    return padded, padded != PAD, torch.tensor(labels)


class ClauseModel(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.embed = nn.Embedding(3000, dim, padding_idx=PAD)
        self.qkv = nn.Linear(dim, dim * 3)
        self.out = nn.Linear(dim, 3)

    def forward(self, tokens, mask):
        q, k, v = self.qkv(self.embed(tokens)).chunk(3, dim=-1)
        att = (q @ k.transpose(1, 2)) / 8.0
        att = att.masked_fill(~mask[:, None, :], -1e9).softmax(-1)
        return self.out((att @ v).mean(1))


def main():
    loader = DataLoader(Contracts(), batch_size=8, collate_fn=collate)
    model = ClauseModel()
    opt = torch.optim.Adam(model.parameters(), lr=5e-4)
    for epoch in range(4):
        for i, (tokens, mask, labels) in enumerate(loader):
            logits = model(tokens, mask)
            loss = nn.functional.cross_entropy(logits, labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 25 == 0:
                print(f"{epoch}.{i:04d} loss {loss.item():.4f}", flush=True)


main()
