import threading

import torch
import torch.nn as nn

lock = threading.Lock()
quotes = []


def trade(number, stop):
    """An actor that posts a quote now and then."""
    price = 100.0 + number % 7
    while not stop.wait(1.0):
        price *= 1.0001
        with lock:
            quotes.append(price)
            del quotes[:-512]


class Pricer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def main(rounds=200, actors_per_round=3):
    model, stop = Pricer(), threading.Event()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(rounds):
        for k in range(actors_per_round):
            actor = threading.Thread(target=trade, args=(number * actors_per_round + k, stop), daemon=True)
            actor.start()
        for _ in range(120):
            x = torch.randn(64, 32)
            loss = nn.functional.mse_loss(model(x), x.mean(1) * 5)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"round {number}: loss {loss.item():.4f}, {len(quotes)} quotes", flush=True)


if __name__ == "__main__":
    main()
