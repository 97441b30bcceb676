"""Disks, shared memory, descriptors and processes that really run out."""

from __future__ import annotations

import os
import resource
import sys

import pytest

from tests.endings.ward import TORCH, as_text

SAVE = (
    TORCH
    + """
import sys

for i in range(2000):
    train_step(torch.randn(8, 64))
    torch.save({"weights": torch.zeros(100_000), "step": i}, f"{sys.argv[1]}/model-{i}.pt")  # here
"""
)
WRITE = """
import sys
import time
import holter

with open(sys.argv[1] + "/metrics.log", "w") as log:
    for i in range(100):
        log.write("x" * 1_000_000)  # here
        log.flush()
        holter.step(loss=1.0)
        time.sleep(0.1)
"""
WORKERS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return torch.zeros(3, 256, 256)


if __name__ == "__main__":
    model = nn.Linear(256, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in DataLoader(Images(), batch_size=16, num_workers=2):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
FILES = """
import time
import holter

kept = []
for i in range(1000):
    kept.append(open(__file__))  # here
    holter.step(loss=1.0)
    time.sleep(0.02)
"""
THREADS = """
import threading
import time
import holter

for i in range(1000):
    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()  # here
    holter.step(loss=1.0)
    time.sleep(0.02)
"""


@pytest.mark.root
@pytest.mark.parametrize("text", [WRITE, SAVE], ids=["write", "torch.save"])
def test_a_full_disk(case, small_disk, text: str) -> None:
    """A write that failed for want of space is told as that, at its line."""
    one = case(text)
    one.run(words=[sys.executable, one.script, str(small_disk)])

    assert (one.kind(), one.first()["cause"]) == ("exception", "disk-full"), as_text(one)
    assert one.first()["culprit"]["line"] == one.line("# here")
    if text is WRITE:
        assert one.first()["grade"] == "established"
        assert str(small_disk) in one.first()["claim"]


@pytest.mark.root
def test_shared_memory_that_is_too_small(case) -> None:
    """Workers whose batches do not fit into /dev/shm: the cause is named with its size, not the disk."""
    if os.system("unshare -m true 2>/dev/null") != 0:
        pytest.skip("no mount namespace of its own can be had here")
    one = case(WORKERS)
    small = 'mount -t tmpfs -o size=24m tmpfs /dev/shm && exec "$@"'
    one.run(prefix=["unshare", "-m", "sh", "-c", small, "sh"])

    assert one.first()["cause"] == "resource.shared-memory", as_text(one)
    assert "25.2 MB" in one.first()["claim"]


def test_open_files_that_run_out(case) -> None:
    """Too many open files, with the limit."""
    one = case(FILES).run(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))

    assert (one.first()["cause"], one.first()["grade"]) == ("resource.file-descriptors", "established"), as_text(one)
    assert "64" in one.first()["claim"]
    assert one.first()["culprit"]["line"] == one.line("# here")


@pytest.mark.root
def test_threads_that_can_not_be_started(case, pids_cgroup) -> None:
    """A container's limit of processes and threads, with its number."""
    one = case(THREADS).run(before=pids_cgroup(40))

    assert one.first()["cause"] == "resource.processes", as_text(one)
    assert "40" in one.first()["claim"]
    assert one.first()["culprit"]["line"] == one.line("# here")
