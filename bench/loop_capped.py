"""A plain loop over a DataLoader on a GPU under a memory cap; one JSON line with the seconds of each pass.

python bench/loop_capped.py KIND CAP_BYTES            the script that `holter run --heal` is shown
python bench/loop_capped.py KIND CAP_BYTES MICRO      accumulation by hand in parts of MICRO, and of half as many, until
                                                      they only get slower: a line for each that is quicker
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch
from heal_models import KINDS
from torch.utils.data import DataLoader, TensorDataset

PASSES, BATCHES = 5, 8
BY_HAND = 3  # passes for each size of the parts


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

    def train(micro: int, passes: int) -> dict[str, Any]:
        took, losses = [], []
        for _ in range(passes):
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
            took.append(time.perf_counter() - began)
            losses.append(total / seen)
        peak = torch.cuda.max_memory_allocated()
        return {"micro": micro, "passes": took, "losses": losses, "peak": peak, "samples": size * BATCHES}

    if not micro:
        print(json.dumps(train(0, PASSES)), flush=True)
        return
    best = float("inf")
    while micro >= 1:
        try:
            found = train(micro, BY_HAND)
        except torch.OutOfMemoryError:
            found = None
        if found is None:
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
        elif found["passes"][-1] < best:
            best = found["passes"][-1]
            print(json.dumps(found), flush=True)
        else:
            return
        micro //= 2


if __name__ == "__main__":
    main()
