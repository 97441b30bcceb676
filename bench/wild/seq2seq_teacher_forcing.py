"""Sequence to sequence with attention and teacher forcing: a loop over time, Python's own random numbers."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
random.seed(0)
V, H, L = 300, 128, 16


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.gru = nn.Embedding(V, H), nn.GRU(H, H, batch_first=True)

    def forward(self, x):
        return self.gru(self.embedding(x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.gru = nn.Embedding(V, H), nn.GRUCell(2 * H, H)
        self.attention, self.out = nn.Linear(2 * H, 1), nn.Linear(H, V)

    def forward(self, token, hidden, seen):
        scores = self.attention(torch.cat([seen, hidden.unsqueeze(1).expand_as(seen)], 2)).squeeze(2)
        context = (F.softmax(scores, 1).unsqueeze(2) * seen).sum(1)
        hidden = self.gru(torch.cat([self.embedding(token), context], 1), hidden)
        return F.log_softmax(self.out(hidden), 1), hidden


encoder, decoder = Encoder(), Decoder()
encoder_optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
decoder_optimizer = torch.optim.Adam(decoder.parameters(), lr=1e-3)
for it in range(20):
    source = torch.randint(1, V, (64, L))
    wanted = source.flip(1)
    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()
    seen, hidden = encoder(source)
    hidden, token, loss = hidden[0], torch.zeros(64, dtype=torch.long), 0
    forced = random.random() < 0.5
    for t in range(L):
        output, hidden = decoder(token, hidden, seen)
        loss = loss + F.nll_loss(output, wanted[:, t])
        token = wanted[:, t] if forced else output.argmax(1).detach()
    loss.backward()
    encoder_optimizer.step()
    decoder_optimizer.step()
    if it % 5 == 4:
        print(f"{it} loss {loss.item() / L:.6f}")
print("digest", f"{sum(p.double().sum().item() for m in (encoder, decoder) for p in m.parameters()):.9f}")
