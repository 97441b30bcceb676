"""What the armed NaN reflex costs a PyTorch step in calm: its hooks switched on and off in one process, in blocks.

Run under the agent with healing on:
    HOLTER_HEAL=1 HOLTER_AGENT_DIR=$(mktemp -d) PYTHONPATH=src/holter/agent/inject python bench/heal_nan.py [KIND]
KIND is small, wide or deep, and cuda or cuda-large on a GPU. Prints one line of JSON.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
import timeit
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import optimizer as hooks

torch.set_num_threads(1)
KIND = sys.argv[1] if len(sys.argv) > 1 else "small"
# width, depth, batch, steps in a block, blocks
SIZES = {
    "small": (48, 3, 16, 50, 240),
    "wide": (1024, 4, 32, 4, 180),
    "deep": (64, 40, 32, 10, 180),
    "cuda": (1024, 12, 512, 100, 120),
    "cuda-large": (8192, 6, 2048, 20, 60),
}
WIDTH, DEPTH, BATCH, BLOCK, BLOCKS = SIZES[KIND]
DEVICE = "cuda" if KIND.startswith("cuda") else "cpu"


def metered(hook: Callable[..., object], spent: list[float]) -> Callable[..., object]:
    def call(*args: object) -> object:
        begun = time.thread_time()
        try:
            return hook(*args)
        finally:
            spent[0] += time.thread_time() - begun

    return call


def between(reflex: Any, optimizer: torch.optim.Optimizer) -> float:
    reflex.until, reflex.states.next_at = 1 << 40, 1 << 62
    call = timeit.repeat(
        lambda: (reflex.before(optimizer, (optimizer,), {}), reflex.after(optimizer, (optimizer,), {})),
        number=20000,
        repeat=5,
    )
    return min(call) / 20000 * 1e6


def main() -> None:
    layers = [part for _ in range(DEPTH) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    x = torch.randn(BATCH, WIDTH, device=DEVICE)
    before, after = dict(hooks._global_optimizer_pre_hooks), dict(hooks._global_optimizer_post_hooks)
    owners = {n: type(getattr(hook, "__self__", None)).__name__ for n, hook in after.items()}
    of_the_reflex = {n: after[n] for n, owner in owners.items() if owner == "NanHeal"}
    assert of_the_reflex, "the reflex is not armed"

    def switch(how: int) -> None:
        """0: without the reflex, 1: with it, 2: with it and a meter in it."""
        others = {n: hook for n, hook in after.items() if n not in of_the_reflex}
        hooks._global_optimizer_pre_hooks.clear()
        hooks._global_optimizer_post_hooks.clear()
        hooks._global_optimizer_pre_hooks.update(({}, before, metered_before)[how])
        hooks._global_optimizer_post_hooks.update((others, after, metered_after)[how])

    reflex = next(iter(of_the_reflex.values())).__self__
    spent, busy = [0.0], 0.0
    metered_before = {n: metered(hook, spent) for n, hook in before.items()}
    metered_after = {n: metered(hook, spent) if n in of_the_reflex else hook for n, hook in after.items()}
    times: dict[int, list[float]] = {0: [], 1: [], 2: []}
    gc.disable()
    for block in range(-6, BLOCKS):
        how = block % 3
        switch(how)
        begun, cpu = time.perf_counter(), time.thread_time()
        for _ in range(BLOCK):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        if how == 0:
            reflex.states.next_at += int((time.perf_counter() - begun) * 1e9)  # its own time stands still
        if block >= 0:
            times[how].append((time.perf_counter() - begun) / BLOCK)
            busy += (time.thread_time() - cpu) if how == 2 else 0.0
        else:
            spent[0] = busy = 0.0
    calls = 2 * BLOCK * len(times[2])
    empty = [0.0]
    nothing = metered(lambda: None, empty)
    for _ in range(20000):
        nothing()
    meter = empty[0] / 20000
    off = statistics.median(times[0])
    paired = [a - b for a, b in zip(times[1], times[0], strict=True)]
    kept = reflex.states.step
    print(
        json.dumps(
            {
                "kind": KIND,
                "step_us": off * 1e6,
                "reflex_us": statistics.median(paired) * 1e6,
                "percent": 100 * statistics.median(paired) / off,
                "inside_percent": 100
                * (spent[0] - meter * calls)
                / busy,  # of the thread's own time, which no neighbour disturbs
                "mean_percent": 100 * statistics.mean(paired) / off,
                "between_us": between(reflex, optimizer),  # a step at which nothing is read
                "kept_step": kept,
            }
        )
    )


if __name__ == "__main__":
    main()
