"""What the agent costs a PyTorch step: patches switched on and off within one process, step by step in blocks.

Run under the agent (bench/run.py does so). Prints one line of JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import timeit
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import optimizer as optimizer_module
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

torch.set_num_threads(1)
BLOCK, BLOCKS = 16, 1600  # short blocks: a noisy neighbour falls on both sides alike

KIND = sys.argv[1] if len(sys.argv) > 1 else "cpu"
# width, depth, batch: a step of a few hundred microseconds; many small kernels; few large ones
WIDTH, DEPTH, BATCH = {"cpu": (16, 2, 4), "launch": (64, 20, 16), "compute": (2048, 8, 2048)}[KIND]
DEVICE = "cpu" if KIND == "cpu" else "cuda"
if KIND != "cpu":
    BLOCKS = 240


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def switches(net: nn.Module) -> list[tuple[object, str, object, object]]:
    """Everything that a step passes through, with and without us."""
    found = []
    places = ((torch.Tensor, "backward"), (_BaseDataLoaderIter, "__next__"), (type(net), "__call__"))
    for owner, name in places:
        patched = owner.__dict__[name] if name in owner.__dict__ else getattr(owner, name)
        plain = getattr(patched, "__wrapped__", None)
        if plain is not None:
            found.append((owner, name, patched, plain))
    return found


def switched(owner: type, name: str) -> list[Callable[..., Any]]:
    """Put one function in a place for good that calls what the list holds.

    To replace a class's attribute at each switch would make Python forget all that it has learnt of the class, which no
    run ever does.
    """
    present = [getattr(owner, name)]

    def call(*args: Any, **kwargs: Any) -> Any:
        return present[0](*args, **kwargs)

    setattr(owner, name, call)
    return present


def warm(optimizer: torch.optim.Optimizer, ours_by_name: dict[str, Any]) -> float:
    """Our own code alone, called over and over with nothing under it: what remains when all of it is in the caches."""
    loss = torch.tensor(1.0)
    backward, following = ours_by_name["backward"], ours_by_name["__next__"]
    (after,) = optimizer_module._global_optimizer_post_hooks.values()
    for function, inner in ((backward, "inner"), (following, "inner_next")):
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        cells[inner].cell_contents = lambda *_args, **_kwargs: None

    def ours() -> None:
        following(None)
        backward(loss)
        after(optimizer, (), {})

    def nothing() -> None:
        empty(None)
        empty(loss)
        empty(optimizer, (), {})

    def empty(*_args: object) -> None:
        pass

    number = 20000
    spent = min(timeit.repeat(ours, number=number, repeat=5)) - min(timeit.repeat(nothing, number=number, repeat=5))
    return spent / number * 1e6


def main() -> None:
    net = Net().to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(BLOCK, WIDTH)), batch_size=1)
    batch = torch.randn(BATCH, WIDTH, device=DEVICE)
    patched = switches(net)
    post = optimizer_module._global_optimizer_post_hooks
    hooks = dict(post)

    present = [switched(owner, name) for owner, name, _ours, _plain in patched]

    def switch(on: bool) -> None:
        for one, (_owner, _name, ours, plain) in zip(present, patched, strict=True):
            one[0] = ours if on else plain
        post.clear()
        if on:
            post.update(hooks)

    times: dict[bool, list[float]] = {True: [], False: []}
    for block in range(-4, BLOCKS):  # the first few warm up
        on = bool(block % 2)
        switch(on)
        begun = time.perf_counter()
        for _ in loader:
            loss = net(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        if block >= 0:
            times[on].append((time.perf_counter() - begun) / BLOCK)
    paired = [a - b for a, b in zip(times[True], times[False], strict=True)]
    print(
        json.dumps(
            {
                "patches": len(patched) + len(hooks),
                "warm_us": warm(optimizer, {name: ours for _owner, name, ours, _plain in patched}),
                "step_us": statistics.median(times[False]) * 1e6,
                "agent_us": statistics.median(paired) * 1e6,
                "quartiles_us": [q * 1e6 for q in statistics.quantiles(paired, n=4)],
            }
        )
    )


if __name__ == "__main__":
    sys.exit(main())
