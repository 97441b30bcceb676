# cause: leak.graph-retained
# memory: 800 MB
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(512, 64)
losses = []
for step in range(160):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    losses.append(loss)
    if step % 10 == 0:
        print("loss", step, loss.item(), flush=True)
