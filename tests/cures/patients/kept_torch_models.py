# cause: leak.model-rebuilt
# memory: 700 MB
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.randn(8, 64)
models = []
for trial in range(45):
    model = nn.Sequential(nn.Linear(64, 20_000 + trial), nn.ReLU(), nn.Linear(20_000 + trial, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(10):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    models.append(model)
    print("loss", trial, loss.item(), flush=True)
