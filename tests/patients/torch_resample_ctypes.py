"""ECG beat classifier; resampling goes through a C buffer since the vendor's library wants one."""
import ctypes
import ctypes.util

import torch
import torch.nn as nn

libc = ctypes.CDLL(ctypes.util.find_library("c"))
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class BeatNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Conv1d(1, 16, 9, stride=2)
        self.body = nn.Conv1d(16, 32, 9, stride=4)
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        return self.head(torch.relu(self.body(x)).mean(-1))


def resample(beats):
    """Copy the batch to a C buffer at the device's rate and back."""
    flat = beats.contiguous()
    size = flat.numel() * flat.element_size()
    buffer = libc.malloc(size * 2)
    libc.memcpy(buffer, flat.data_ptr(), size)
    libc.memcpy(buffer + size, flat.data_ptr(), size)
    back = torch.empty_like(flat)
    libc.memcpy(back.data_ptr(), buffer + size, size)
    return back.mul_(0.5)


def batches(total, size=64, length=1440):
    g = torch.Generator().manual_seed(8)
    for _ in range(total):
        kind = torch.randint(0, 5, (size,), generator=g)
        wave = torch.randn(size, 1, length, generator=g) + kind[:, None, None] * 0.3
        yield wave, kind


model = BeatNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step, (wave, kind) in enumerate(batches(12_000), 1):
    loss = nn.functional.cross_entropy(model(resample(wave)), kind)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step:5d} loss {loss.item():.4f}", flush=True)
