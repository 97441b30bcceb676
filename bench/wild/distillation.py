"""Distillation: a frozen teacher, a student, two losses; a scheduler and label smoothing."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


def conv(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(2 * width, 10),
    )  # fmt: skip


teacher, student = conv(48).eval(), conv(16)
for p in teacher.parameters():
    p.requires_grad = False
data = torch.utils.data.TensorDataset(torch.randn(480, 3, 32, 32), torch.randint(0, 10, (480,)))
loader = torch.utils.data.DataLoader(data, batch_size=96, shuffle=True, num_workers=0)
optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=2 * len(loader))
for epoch in range(2):
    for x, y in loader:
        with torch.no_grad():
            soft = F.softmax(teacher(x) / 4.0, dim=1)
        logits = student(x)
        loss = F.kl_div(F.log_softmax(logits / 4.0, dim=1), soft, reduction="batchmean") * 16.0
        loss = 0.7 * loss + 0.3 * F.cross_entropy(logits, y, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(f"{epoch} loss {loss.item():.6f} lr {scheduler.get_last_lr()[0]:.6f}")
print("digest", f"{sum(p.double().sum().item() for p in student.parameters()):.9f}")
