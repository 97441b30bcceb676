import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = "cpu"
pictures = torch.rand(1500, 1, 20, 40)
letters = (pictures[:, 0, :4, :4].mean((1, 2)) * 26).long().clamp(0, 25)
loader = DataLoader(TensorDataset(pictures, letters), batch_size=30, shuffle=True)

model = nn.Sequential(nn.Flatten(), nn.Linear(800, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 26)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device, init_scale=2.0 ** 24)
criterion = nn.CrossEntropyLoss()

for epoch in range(20):
    total = 0.0
    for x, y in loader:
        with torch.autocast(device_type=device, dtype=torch.float16):
            out = model(x)
            loss = criterion(out, y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        total += loss.item()
    print(f"epoch {epoch + 1:2d} loss {total / len(loader):.4f} scale {scaler.get_scale():.0f}", flush=True)
