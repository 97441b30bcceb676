# cause: leak.model-rebuilt
# also: recompile.closure
import time

import torch

torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(60)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
example = torch.randn(32, 8)
begun = time.monotonic()
for step in range(100):
    traced = torch.jit.trace(model, example)
    loss = traced(torch.randn(32, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("SECONDS", time.monotonic() - begun)
