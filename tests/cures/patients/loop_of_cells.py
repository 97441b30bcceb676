# cause: overhead.eager-loop
# line: h, c = cell(x[:, t], (h, c))
import time

import torch

torch.set_num_threads(1)
cell, head = torch.nn.LSTMCell(8, 16), torch.nn.Linear(16, 1)
optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=0.01)
begun = time.process_time()
step = 0
while time.process_time() - begun < 16:
    step += 1
    x = torch.randn(16, 300, 8)
    h, c = torch.zeros(16, 16), torch.zeros(16, 16)
    for t in range(300):
        h, c = cell(x[:, t], (h, c))
    loss = head(h).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("SECONDS", (time.process_time() - begun) / step)  # of a step
