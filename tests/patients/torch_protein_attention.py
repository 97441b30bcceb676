import math
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RESIDUES, LENGTH = 25, 1024


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)
        weights = scores.softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, d))


class FoldClassifier(nn.Module):
    def __init__(self, dim=32, heads=8, folds=12):
        super().__init__()
        self.embed = nn.Embedding(RESIDUES, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.head = nn.Linear(dim, folds)

    def forward(self, tokens):
        x = self.embed(tokens)
        mixed = self.attention(self.norm1(x))
        x = x + mixed
        x = x + self.mlp(self.norm2(x))
        return self.head(x.mean(1))


sequences = torch.randint(0, RESIDUES, (4096, LENGTH), dtype=torch.int32)
folds = torch.randint(0, 12, (4096,))
loader = DataLoader(TensorDataset(sequences, folds), batch_size=1024, shuffle=True)
model = FoldClassifier()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

for epoch in range(3):
    for tokens, fold in loader:
        out = model(tokens)
        loss = nn.functional.cross_entropy(out, fold)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print("loss", loss.item())
