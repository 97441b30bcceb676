# cause: leak.tensors-kept
# memory: 800 MB
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4000))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(128, 64)
seen = []
for step in range(400):
    out = model(x)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    seen.append(out.detach())
    if step % 20 == 0:
        print("loss", step, loss.item(), flush=True)
print("mean", sum(float(one.mean()) if hasattr(one, "mean") else one for one in seen) / len(seen))
