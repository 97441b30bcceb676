"""Long job for the cluster. The scheduler announces a pause with SIGUSR1; we save and go on until it really comes."""
import os
import signal
import tempfile

import torch
import torch.nn as nn


class State:
    def __init__(self, folder):
        self.path = os.path.join(folder, "state.pt")
        self.asked = False
        self.step = 0

    def on_signal(self, number, frame):
        self.asked = True

    def save(self, model, optimizer):
        torch.save({"step": self.step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, self.path)
        print(f"saved at step {self.step}", flush=True)


def main():
    torch.manual_seed(9)
    state = State(tempfile.mkdtemp())
    signal.signal(signal.SIGUSR1, state.on_signal)
    signal.signal(signal.SIGTERM, state.on_signal)

    truth = nn.Sequential(nn.Linear(50, 30), nn.Tanh(), nn.Linear(30, 1)).requires_grad_(False)
    model = nn.Sequential(nn.Linear(50, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6500)

    while state.step < 6500:
        x = torch.randn(256, 50)
        loss = nn.functional.mse_loss(model(x), truth(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        state.step += 1
        if state.asked:
            state.asked = False
            state.save(model, optimizer)
        if state.step % 500 == 0:
            print(f"{state.step}: {loss.item():.5f}", flush=True)
    state.save(model, optimizer)


if __name__ == "__main__":
    main()
