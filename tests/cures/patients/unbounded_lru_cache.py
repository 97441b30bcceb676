# cause: leak.cache-unbounded
# memory: 800 MB
import time
from functools import lru_cache

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)


@lru_cache(maxsize=None)
def image(number):
    return np.full((1000, 500), number % 7, dtype="float32")


for step in range(400):
    x = torch.from_numpy(image(step)[:32, :64])
    loss = (model(x) - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.015)
    if step % 20 == 0:
        print("loss", step, loss.item(), flush=True)
