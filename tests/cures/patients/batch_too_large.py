# cause: oversize.batch
# memory: 900 MB
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
data = torch.randn(8192, 32)
model = nn.Sequential(nn.Linear(32, 8192), nn.ReLU(), nn.Linear(8192, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(3):
    loss = model(data).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", step, loss.item(), flush=True)
