"""A plain loop over a DataLoader on a GPU under a memory cap; one JSON line with the seconds of each pass.

python bench/loop_capped.py KIND CAP_BYTES [MICRO]      with MICRO: accumulation by hand, in parts of this many
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch
from heal_models import KINDS
from torch.utils.data import DataLoader, TensorDataset

PASSES, BATCHES = 5, 8


def main() -> None:
    kind, cap = sys.argv[1], int(sys.argv[2])
    micro = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    make, data, loss_of = KINDS[kind]
    torch.manual_seed(0)
    drawn = [data() for _ in range(BATCHES)]
    rows = [torch.cat([batch[n] for batch in drawn]).cpu() for n in range(2)]
    size = len(drawn[0][0])
    del drawn
    torch.cuda.empty_cache()
    model = make().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    if cap:
        torch.cuda.set_per_process_memory_fraction(cap / torch.cuda.get_device_properties(0).total_memory)
    torch.cuda.reset_peak_memory_stats()
    loader = DataLoader(TensorDataset(*rows), batch_size=size, shuffle=True)
    passes, losses = [], []
    for _ in range(PASSES):
        began, total, seen = time.perf_counter(), 0.0, 0
        for batch in loader:
            x, y = (part.cuda() for part in batch)
            optimizer.zero_grad(set_to_none=True)
            if micro:
                for begin in range(0, size, micro):
                    loss = loss_of(model, (x[begin : begin + micro], y[begin : begin + micro]), micro / size)
                    loss.backward()
            else:
                loss = loss_of(model, (x, y))
                loss.backward()
            optimizer.step()
            total += loss.item() * (size / micro if micro else 1)
            seen += 1
        torch.cuda.synchronize()
        passes.append(time.perf_counter() - began)
        losses.append(total / seen)
    peak = torch.cuda.max_memory_allocated()
    print(json.dumps({"passes": passes, "losses": losses, "peak": peak, "samples": size * BATCHES}))


if __name__ == "__main__":
    main()
