import torch
from torch import nn

torch.manual_seed(0)
lines = ["shall i compare thee to a summers day", "thou art more lovely and more temperate",
         "rough winds do shake the darling buds of may", "and summers lease hath all too short a date"]
text = "\n".join(lines * 50)
chars = sorted(set(text))
ids = torch.tensor([chars.index(c) for c in text])


class PoemModel(nn.Module):
    def __init__(self, vocab, dim=64, heads=4):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.zeros(64, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 128, dropout=0.1, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(dim, vocab)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(64))

    def forward(self, x):
        h = self.tok(x) + self.pos
        return self.out(self.blocks(h, mask=self.mask, is_causal=True))


model = PoemModel(len(chars))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(50_000):
    at = torch.randint(0, len(ids) - 65, (16,))
    block = torch.stack([ids[a:a + 65] for a in at])
    loss = nn.functional.cross_entropy(model(block[:, :-1]).flatten(0, 1), block[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        print(step, round(loss.item(), 4), flush=True)
