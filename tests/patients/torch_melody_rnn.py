import math

import torch
import torch.nn as nn


class MelodyModel(nn.Module):
    def __init__(self, pitches=1, hidden=80):
        super().__init__()
        self.rnn = nn.RNN(pitches, hidden, nonlinearity="relu", num_layers=2, batch_first=True)
        self.out = nn.Linear(hidden, pitches)

    def forward(self, notes):
        return self.out(self.rnn(notes)[0])


class Session:
    def __init__(self, model, peak_lr, steps):
        self.model, self.steps = model, steps
        self.optimizer = torch.optim.SGD(model.parameters(), lr=peak_lr)
        self.warmup = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: min(1.0, (s + 1) / 2400))

    def loss(self, notes):
        return nn.functional.mse_loss(self.model(notes[:, :-1]), notes[:, 1:])

    def run(self, source):
        for step in range(self.steps):
            notes = source(24)
            loss = self.loss(notes)
            if not math.isfinite(loss.item()):
                raise RuntimeError(f"loss is {loss.item()} at step {step}")
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.warmup.step()
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f} lr {self.warmup.get_last_lr()[0]:.4f}", flush=True)


def melodies(count, length=60):
    base = torch.randint(-12, 13, (count, 1)).float()
    walk = torch.randint(-2, 3, (count, length)).float().cumsum(1)
    return ((base + walk) / 4).unsqueeze(-1)


torch.manual_seed(4)
Session(MelodyModel(), peak_lr=0.6, steps=3000).run(melodies)
