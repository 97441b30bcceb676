"""Two-tower click model on two processes; each rank streams its own log."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Sequential(nn.Linear(40, 256), nn.ReLU(), nn.Linear(256, 64))
        self.item = nn.Sequential(nn.Linear(60, 256), nn.ReLU(), nn.Linear(256, 64))

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(1)


class Clicks:
    def __init__(self, rank, batches, size):
        self.g = torch.Generator().manual_seed(100 + rank)
        self.rank, self.batches, self.size = rank, batches, size
        self.seen = 0

    def __iter__(self):
        for _ in range(self.batches):
            self.seen += 1
            u = torch.randn(self.size, 40, generator=self.g)
            i = torch.randn(self.size, 60, generator=self.g)
            if self.rank == 1 and self.seen % 1350 == 0:
                u = u * 60  # a bot
            yield u, i, (u[:, 0] + i[:, 0] > 0).float()


class Runner:
    def __init__(self):
        dist.init_process_group("gloo")
        self.rank = dist.get_rank()
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.model = DistributedDataParallel(Towers())
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def usable(self, loss):
        return loss.item() < 4.0

    def step(self, u, i, y):
        loss = F.binary_cross_entropy_with_logits(self.model(u, i), y)
        if not self.usable(loss):
            return None
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def run(self, epochs):
        clicks = Clicks(self.rank, 300, 512)
        for epoch in range(epochs):
            last = None
            for u, i, y in clicks:
                last = self.step(u, i, y) or last
            dist.barrier()
            if self.rank == 0:
                print(f"epoch {epoch} loss {last:.4f}", flush=True)
        dist.destroy_process_group()


if __name__ == "__main__":
    Runner().run(20)
