# cause: disk-full
# line: torch.save({"weights": torch.zeros(100_000), "step": step}, f"{sys.argv[1]}/model-{step}.pt")
# disk: 16m
import sys

import torch

model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    model(torch.randn(8, 64)).pow(2).mean().backward()
    optimizer.step()
    torch.save({"weights": torch.zeros(100_000), "step": step}, f"{sys.argv[1]}/model-{step}.pt")
