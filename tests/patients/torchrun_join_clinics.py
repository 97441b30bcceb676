"""Two clinics with different numbers of patients train one model together."""
import time

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def clinic(rank):
    g = torch.Generator().manual_seed(rank + 1)
    n = 7000 if rank == 0 else 4300
    x = torch.randn(n, 80, generator=g)
    return TensorDataset(x, (x[:, :5].sum(1) > 0).long())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(21)
    net = DDP(nn.Sequential(nn.Linear(80, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2)))
    opt = optim.AdamW(net.parameters(), lr=1e-3)
    loader = DataLoader(clinic(rank), batch_size=32, shuffle=True)
    for epoch in range(10):
        began = time.time()
        with Join([net]):
            for x, y in loader:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
        print(f"rank {rank} epoch {epoch} loss {loss.item():.4f} {time.time() - began:.1f}s", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
