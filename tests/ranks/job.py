"""A small DDP training with one fault: python job.py FAULT. The rank that has it is the last one."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FAULT = sys.argv[1]
STEPS = {"slow-backward": 260, "slow-data": 260, "jitter": 260}.get(FAULT, 120)
AT = 50


class SlowGradient(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x):
        return x.clone()

    @staticmethod
    def backward(_ctx, gradient):
        time.sleep(0.08)  # the delay
        return gradient


def evaluate(model):
    time.sleep(25)
    return model(torch.randn(4, 32)).mean().item()


def main():
    if FAULT == "never" and int(os.environ["RANK"]) == 1:
        time.sleep(1000)  # never comes
    if FAULT == "late" and int(os.environ["RANK"]) == 1:
        time.sleep(8)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    faulty = rank == world - 1
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        time.sleep(0.05 + (0.005 if FAULT == "jitter" and step % world == rank else 0.0))
        x = torch.randn(16, 32)
        if faulty and step == AT:
            if FAULT == "stuck":
                time.sleep(1000)  # stands here
            if FAULT == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if FAULT == "raises":
                raise ValueError("bad sample")
            if FAULT == "extra":
                dist.all_gather([torch.ones(4) for _ in range(world)], torch.ones(4))  # the others do not
        if FAULT == "evaluates" and rank == 0 and step == AT:
            evaluate(model.module)
        y = model(x)
        if FAULT == "slow-backward" and faulty:
            y = SlowGradient.apply(y)
        loss = y.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
