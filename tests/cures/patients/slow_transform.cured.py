import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


def sharpen(number):
    return [sum(k * k for k in range(2500)) * number % 7 for _ in range(64)]


class Images(Dataset):
    def __init__(self):
        self.done = [torch.tensor(sharpen(number), dtype=torch.float32) for number in range(480)]

    def __len__(self):
        return 480

    def __getitem__(self, number):
        return self.done[number]


model = nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
begun, steps = sum(os.times()[:4]), 0
images = Images()
ends = time.monotonic() + 20
while time.monotonic() < ends:
    for x in DataLoader(images, batch_size=8, num_workers=2):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
print("SECONDS", (sum(os.times()[:4]) - begun) / steps)  # of all processes, for a step
