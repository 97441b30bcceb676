# cause: input-bound.no-prefetch
import os
import time
from collections import Counter

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Far(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, number):
        time.sleep(0.01)
        return torch.randn(64), os.getpid()


model = nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Far(), batch_size=8)
samples = Counter()
for epoch in range(4):
    for x, by in loader:
        samples.update(by.tolist())
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print("SECONDS", 0.01 * max(samples.values()))
