import torch
from torch import nn


class VisitModel(nn.Module):
    """Poisson regression of daily visits per page."""

    def __init__(self, features=24):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU())
        self.out = nn.Linear(96, 1)

    def forward(self, x):
        return self.out(self.body(x))


def site_log(days, pages=64):
    """The site's log from its first day on; it becomes more popular every day."""
    g = torch.Generator().manual_seed(0)
    for day in range(days):
        popularity = 1.5 + 9.0 * day / days
        features = torch.randn(pages, 24, generator=g)
        rate = torch.exp(popularity + 0.2 * features[:, 0])
        yield features, torch.poisson(rate, generator=g), popularity


torch.manual_seed(0)
model = VisitModel().half()
optimizer = torch.optim.SGD(model.parameters(), lr=2e-4)

for day, (features, count, popularity) in enumerate(site_log(3000)):
    features[:, 1] = popularity / 10
    visits = count.half()
    log_rate = model(features.half()).squeeze(1)
    loss = (log_rate.exp() - visits * log_rate).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    if day % 100 == 0:
        print(f"day {day} loss {loss.item():.2f} mean visits {count.mean():.0f}", flush=True)
