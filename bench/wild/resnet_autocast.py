"""An image classifier as most scripts have it: autocast, a gradient scaler, validation, the best state kept on disk."""

import argparse
import os
import tempfile

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch-size", type=int, default=64)
args = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Residual(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False), nn.BatchNorm2d(c_out)
        self.conv2, self.bn2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False), nn.BatchNorm2d(c_out)
        self.short = nn.Conv2d(c_in, c_out, 1, stride, bias=False)

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(out)) + self.short(x))


model = nn.Sequential(Residual(3, 32, 1), Residual(32, 64, 2), Residual(64, 128, 2), nn.AdaptiveAvgPool2d(1),
                      nn.Flatten(), nn.Linear(128, 10)).to(device)  # fmt: skip
dataset = torch.utils.data.TensorDataset(torch.randn(320, 3, 32, 32), torch.randint(0, 10, (320,)))
train_set, val_set = torch.utils.data.random_split(dataset, [256, 64])
train_loader = torch.utils.data.DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
val_loader = torch.utils.data.DataLoader(val_set, batch_size=args.batch_size)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
best, path = float("inf"), os.path.join(tempfile.mkdtemp(), "best.pt")
for epoch in range(args.epochs):
    model.train()
    for images, labels in train_loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = criterion(model(images), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
    model.eval()
    total = 0.0
    with torch.no_grad():
        for images, labels in val_loader:
            total += criterion(model(images.to(device)), labels.to(device)).item()
    if total < best:
        best = total
        torch.save({"model": model.state_dict(), "epoch": epoch}, path)
    print(f"epoch {epoch} train {loss.item():.5f} val {total:.5f}")
print("digest", f"{sum(p.double().sum().item() for p in model.parameters()):.9f}")
