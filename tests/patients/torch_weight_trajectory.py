import time

import torch
import torch.nn as nn


class Forecaster(nn.Module):
    """Predicts the next day of hourly demand from the last week."""

    def __init__(self, lookback=168, horizon=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(lookback, 384), nn.ReLU(), nn.Dropout(0.1), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, horizon)
        )

    def forward(self, x):
        return self.net(x)


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.RMSprop(model.parameters(), lr=lr)
        self.loss_fn = nn.HuberLoss()
        self.history = {"loss": [], "weights": []}

    def fit(self, series, epochs, batch_size=1024):
        windows = series.unfold(0, 192, 3)
        started = time.time()
        for epoch in range(epochs):
            order = torch.randperm(len(windows))
            for chunk in order.split(batch_size):
                self._step(windows[chunk])
            mean = sum(self.history["loss"][-10:]) / 10
            print(f"epoch {epoch:03d} | loss {mean:.5f} | {time.time() - started:.0f}s", flush=True)

    def _step(self, batch):
        x, y = batch[:, :168], batch[:, 168:]
        loss = self.loss_fn(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.history["loss"].append(loss.item())
        self.history["weights"].append({k: v.detach().clone() for k, v in self.model.state_dict().items()})


if __name__ == "__main__":
    torch.manual_seed(0)
    hours = torch.arange(20_000, dtype=torch.float32)
    demand = torch.sin(hours * 0.2618) + 0.4 * torch.sin(hours * 0.0374) + 0.1 * torch.randn(len(hours))
    Trainer(Forecaster(), lr=5e-4).fit(demand, epochs=400)
