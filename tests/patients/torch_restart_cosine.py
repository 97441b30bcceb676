import torch
from torch import nn
import torch.nn.functional as F

IMAGE = (3, 32, 32)
CLASSES = 10

torch.manual_seed(1)
images = torch.randn(480, *IMAGE)
labels = torch.randint(0, CLASSES, (480,))


def build_net():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 8 * 8, 1024), nn.ReLU(),
        nn.Linear(1024, CLASSES),
    )


net = build_net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
batch_size = 48

for restart in range(300):
    order = torch.randperm(len(images))
    running = 0.0
    for i in range(0, len(images), batch_size):
        picked = order[i:i + batch_size]
        loss = F.cross_entropy(net(images[picked]), labels[picked])
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        running += loss.item()
    print(f"restart {restart + 1}: mean loss {running / (len(images) // batch_size):.4f}", flush=True)

    # fresh weights for the next restart, keep the same optimizer settings
    net = build_net()
    optimizer.add_param_group({"params": net.parameters()})

print("done")
