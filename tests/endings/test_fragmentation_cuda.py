"""A real fragmented pool on a GPU. Needs CUDA; run by hand where there is one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.endings.ward import Case, as_text

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

# Blocks of 9 MB lie two by two in segments of 20 MB: with every other one freed, half of the pool is free in pieces.
HOLES = """
import torch
from torch import nn

total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(2e9 / total)
model = nn.Linear(64, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = [torch.empty(9 << 20, dtype=torch.uint8, device="cuda") for _ in range(180)]
for step in range(30):
    loss = model(torch.randn(64, 64, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
FREE
large = torch.empty(SIZE << 20, dtype=torch.uint8, device="cuda")  # here
"""


def test_a_pool_full_of_holes(case: Callable[..., Case]) -> None:
    """More lies free in the pool than is asked for: fragmentation, at the line that asked."""
    one = case(HOLES.replace("FREE", "del kept[::2]").replace("SIZE", "512")).run()

    assert one.first()["cause"] == "fragmentation", as_text(one)
    assert one.first()["culprit"]["line"] == one.line("# here")


def test_a_full_pool_is_not_fragmented(case: Callable[..., Case]) -> None:
    """The same pool without the holes: what is asked for does not fit."""
    one = case(HOLES.replace("FREE", "").replace("SIZE", "1024")).run()

    assert one.first()["cause"].startswith(("oversize", "leak")), as_text(one)
