import struct
import subprocess

import numpy as np
import torch
from torch import nn

BATCH, SAMPLES = 32, 512
CHUNK = BATCH * SAMPLES * 4

# the receiver writes interleaved float32 samples to its standard output
RECEIVER = "dd if=/dev/zero bs=65536 count=600 2>/dev/null; sleep 1000"
feed = subprocess.Popen(["sh", "-c", RECEIVER], stdout=subprocess.PIPE)


def batches():
    rng = np.random.default_rng(0)
    while True:
        raw = feed.stdout.read(CHUNK)
        if len(raw) < CHUNK:
            return
        block = np.frombuffer(raw, dtype=np.float32).reshape(BATCH, SAMPLES)
        yield torch.from_numpy(block + rng.standard_normal(block.shape, dtype=np.float32))


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(SAMPLES, 256), nn.ReLU(), nn.Linear(256, 24))
        self.decode = nn.Sequential(nn.Linear(24, 256), nn.ReLU(), nn.Linear(256, SAMPLES))

    def forward(self, x):
        return self.decode(self.encode(x))


model = AutoEncoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for number, x in enumerate(batches(), 1):
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if number % 50 == 0:
        print(f"{number} blocks, loss {loss.item():.4f}", flush=True)
print("stream over", struct.calcsize("f"))
