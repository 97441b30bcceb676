import ctypes

import torch
import torch.nn as nn

lib = ctypes.CDLL(None)


class MeshSmoother(nn.Module):
    def __init__(self, vertices=500):
        super().__init__()
        self.move = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 3))

    def forward(self, xyz):
        return xyz + 0.1 * self.move(xyz)


def compact(xyz, keep):
    """Close the gaps in place with the C library, faster than indexing."""
    xyz = xyz.contiguous()
    row = xyz.shape[1] * xyz.element_size()
    base = lib.strdup(b"x" * (row * len(xyz) + 1))
    lib.memmove(base, ctypes.c_void_p(xyz.data_ptr()), row * keep)
    return xyz[:keep]


torch.manual_seed(0)
model = MeshSmoother()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(5000):
    xyz = torch.randn(500, 3)
    if step % 1500 == 1499:
        xyz = compact(xyz, keep=250)
    out = model(xyz)
    loss = (out - out.roll(1, 0)).pow(2).mean() + (out - xyz).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 200 == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
