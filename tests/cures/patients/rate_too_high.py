# cause: nan.learning-rate
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)

x = torch.randn(640, 16)
y = x.sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

optimizer = torch.optim.SGD(model.parameters(), lr=3.0)
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
for epoch in range(3):
    for a, b in loader:
        loss = nn.functional.mse_loss(model(a), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print("LOSS", loss.item())
