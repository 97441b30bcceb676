import time

import torch
import torch.nn as nn

# frames of a robot's camera, kept in RAM; training starts with the easy ones
torch.manual_seed(0)
FRAMES, SIDE = 11_000, 96
frames = torch.empty(FRAMES, 3, SIDE, SIDE, dtype=torch.uint8)
for start in range(0, 1_500, 500):
    frames[start:start + 500] = torch.randint(0, 255, (500, 3, SIDE, SIDE), dtype=torch.uint8)
steering = torch.rand(FRAMES) * 2 - 1

model = nn.Sequential(
    nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(), nn.Flatten(),
    nn.Linear(8 * 5 * 5, 32), nn.ReLU(), nn.Linear(32, 1),
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
extra = [torch.zeros(FRAMES, 3, SIDE // 2, SIDE // 2, dtype=torch.float16) for _ in range(2)]
ready = 1_500


def add_recordings(upto):
    """Record more frames, with two half-size copies for the augmentations."""
    for start in range(ready, upto, 100):
        stop = min(upto, start + 100)
        frames[start:stop] = torch.randint(0, 255, (stop - start, 3, SIDE, SIDE), dtype=torch.uint8)
        small = frames[start:stop, :, ::2, ::2].half()
        extra[0][start:stop] = small
        extra[1][start:stop] = small.flip(-1)
    return upto


for epoch in range(30):
    began, total = time.time(), 0.0
    for step in range(60):
        pick = torch.randint(0, ready, (96,))
        scale = 1 + 0.01 * extra[step % 2][pick].float().mean()
        x = frames[pick][:, :, ::2, ::2].float() / 255 * scale
        loss = (model(x).squeeze(1) - steering[pick]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch + 1:2d} frames {ready} loss {total / 60:.4f} {time.time() - began:.1f}s", flush=True)
    if epoch >= 3 and ready < FRAMES:
        ready = add_recordings(min(FRAMES, ready + 2_500))
