import torch
from torch import nn


class Ranker(nn.Module):
    def __init__(self, articles, dim=64):
        super().__init__()
        self.articles = nn.Embedding(articles, dim)
        self.query = nn.Linear(20, dim)

    def forward(self, query, article):
        return (self.query(query) * self.articles(article)).sum(1)


torch.manual_seed(0)
ARTICLES = 500_000
model = Ranker(ARTICLES)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
mib = 3 * sum(p.numel() for p in model.parameters()) * 4 / 2 ** 20
print(f"weights, gradients and momentum: {mib:.0f} MiB", flush=True)

for step in range(1, 121):
    query = torch.randn(512, 20)
    article = torch.randint(0, ARTICLES, (512,))
    clicked = (query[:, 0] > 0).float()
    loss = nn.functional.binary_cross_entropy_with_logits(model(query, article), clicked)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
