import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
n = 3000
area = torch.rand(n) * 3 + 0.5
rooms = torch.randint(1, 8, (n,)).float()
age = torch.rand(n) * 5
distance = torch.rand(n) * 4
x = torch.stack([area, rooms, age, distance], dim=1)
y = (3.1 * area + 0.4 * rooms - 0.2 * age - 0.5 * distance + 0.1 * torch.randn(n)).unsqueeze(1)

loader = DataLoader(TensorDataset(x, y), batch_size=60, shuffle=True)
model = nn.Linear(4, 1)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.031)

for epoch in range(60):
    total = 0.0
    for rows, price in loader:
        loss = criterion(model(rows), price)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch + 1:2d} | train mse {total / len(loader):.4f}", flush=True)
