import string

import torch
from torch import nn

torch.manual_seed(0)
alphabet = string.ascii_lowercase + " .,\n"
words = ["the", "river", "ran", "cold", "under", "stone", "and", "light", "fell", "over", "fields", "slowly", "again"]
gen = torch.Generator().manual_seed(5)
text = " ".join(words[i] for i in torch.randint(len(words), (60000,), generator=gen).tolist())
codes = torch.tensor([alphabet.index(c) for c in text])
split = int(len(codes) * 0.9)
train_codes, test_codes = codes[:split], codes[split:]


class CharLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(len(alphabet), 48)
        self.lstm = nn.LSTM(48, 128, batch_first=True)
        self.out = nn.Linear(128, len(alphabet))

    def forward(self, x):
        h, _ = self.lstm(self.emb(x))
        return self.out(h)


def sample(source, batch, length=48):
    starts = torch.randint(0, len(source) - length - 1, (batch,))
    block = torch.stack([source[s:s + length + 1] for s in starts])
    return block[:, :-1], block[:, 1:]


model = CharLM()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
heldout, seen = 0.0, 0

for step in range(1, 15001):
    x, y = sample(train_codes, 16)
    loss = criterion(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()

    xv, yv = sample(test_codes, 8)
    heldout += criterion(model(xv).flatten(0, 1), yv.flatten())
    seen += 1
    if step % 50 == 0:
        print(f"{step:6d}  train {loss.item():.3f}  held-out {(heldout / seen).item():.3f}", flush=True)
