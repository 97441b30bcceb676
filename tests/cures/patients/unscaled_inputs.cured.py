import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)

x = 1000 + 500 * torch.randn(640, 16)
y = x.mean(1, keepdim=True) / 1000
x = (x - x.mean(0)) / (x.std(0) + 1e-8)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
for epoch in range(3):
    for a, b in loader:
        loss = nn.functional.mse_loss(model(a), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print("LOSS", loss.item())
