"""A word-level language model: hidden state carried and repackaged, weights updated by hand, no optimizer."""

import torch
import torch.nn as nn

torch.manual_seed(1111)
ntokens, emsize, nhid, bptt, batch_size, lr, clip = 400, 100, 128, 30, 32, 2.0, 0.25
corpus = torch.randint(0, ntokens, (bptt * 12 + 1, batch_size))


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(ntokens, emsize)
        self.rnn, self.decoder = nn.LSTM(emsize, nhid, 2, dropout=0.2), nn.Linear(nhid, ntokens)

    def forward(self, x, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return torch.log_softmax(self.decoder(self.drop(output)).view(-1, ntokens), 1), hidden

    def init_hidden(self):
        weight = next(self.parameters())
        return weight.new_zeros(2, batch_size, nhid), weight.new_zeros(2, batch_size, nhid)


def repackage_hidden(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


model, criterion = RNNModel(), nn.NLLLoss()
for epoch in range(2):
    model.train()
    hidden = model.init_hidden()
    for i in range(0, corpus.size(0) - 1, bptt):
        data, targets = corpus[i : i + bptt], corpus[i + 1 : i + 1 + bptt].reshape(-1)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        print(f"{epoch} {i} loss {loss.item():.6f}")
print("digest", f"{sum(p.double().sum().item() for p in model.parameters()):.9f}")
