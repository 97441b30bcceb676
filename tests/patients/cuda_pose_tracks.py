"""Pose regression on synthetic clips; tracks are scored at the end of an epoch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
clips = torch.randn(4096, 3, 96, 96)
joints = torch.rand(4096, 34)
loader = DataLoader(TensorDataset(clips, joints), batch_size=64, shuffle=True, num_workers=2, pin_memory=True)

backbone = nn.Sequential(
    nn.Conv2d(3, 64, 5, padding=2), nn.ReLU(), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(),
)
head = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(2048, 34))
model = nn.ModuleDict({"backbone": backbone, "head": head}).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
tracks = {"maps": [], "error": []}

for epoch in range(50):
    for clip, target in loader:
        clip, target = clip.cuda(non_blocking=True), target.cuda(non_blocking=True)
        maps = model["backbone"](clip)
        pose = model["head"](maps)
        loss = nn.functional.smooth_l1_loss(pose, target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        tracks["maps"].append(maps.detach())
        tracks["error"].append(float(loss))
    print(f"epoch {epoch} error {sum(tracks['error'][-64:]) / 64:.4f}", flush=True)
