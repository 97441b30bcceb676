import argparse
import os
import time

import numpy as np
import torch
from torch import nn

TRACES, SAMPLES = 90_000, 1500


def export(path):
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(TRACES, SAMPLES))
    rng = np.random.default_rng(0)
    for start in range(0, TRACES, 5000):
        out[start:start + 5000] = rng.standard_normal((5000, SAMPLES), dtype=np.float32)
    out.flush()


class Picker(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(1, 8, 25, stride=10), nn.ReLU(), nn.Conv1d(8, 8, 9, stride=4), nn.ReLU())
        self.out = nn.LazyLinear(1)

    def forward(self, x):
        return self.out(self.conv(x.unsqueeze(1)).flatten(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--export", action="store_true")
    parser.add_argument("--epochs", type=int, default=24)
    args = parser.parse_args()
    path = os.path.join(os.environ.get("PATIENT_DISK", "."), "traces.npy")
    if args.export:
        return export(path)

    traces = np.load(path, mmap_mode="r")
    model, loss_fn = Picker(), nn.SmoothL1Loss()
    model(torch.zeros(1, SAMPLES))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    rng = np.random.default_rng(1)
    for epoch in range(args.epochs):
        began = time.time()
        upto = min(TRACES, 4000 * 2 ** (epoch // 4))
        for step in range(40):
            rows = np.sort(rng.integers(0, upto, 96))
            x = torch.from_numpy(traces[rows])
            loss = loss_fn(model(x), x.abs().amax(1))
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} traces {upto} loss {loss.item():.4f} ({time.time() - began:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
