import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group(backend="gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def evaluate(model, x, y):
    with torch.no_grad():
        total = (model(x).argmax(1) == y).float().sum().reshape(1)
    dist.all_reduce(total)
    return total.item() / (world * len(y))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 6))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
g = torch.Generator().manual_seed(100 + rank)
x = torch.randn(4096, 32, generator=g)
y = x[:, :6].argmax(1)

for epoch in range(20):
    for i in range(0, len(x), 32):
        loss = nn.functional.cross_entropy(model(x[i:i + 32]), y[i:i + 32])
        opt.zero_grad()
        loss.backward()
        average_gradients(model)
        opt.step()
    if rank == 0:
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
        if epoch % 5 == 4:
            score = evaluate(model, x, y)
            print(f"accuracy {score:.3f}", flush=True)
    dist.barrier()

dist.destroy_process_group()
