"""Real kills by the kernel's OOM killer in a control group, and kills that only look like one."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.endings.conftest import Join
from tests.endings.ward import TORCH, Case, as_text

MB = 1_000_000
LIMIT = 700 * MB

LEAK = (
    TORCH
    + """
kept = []
for step in range(100_000):
    batch = torch.randn(256, 64)
    train_step(batch, 0.02)
    kept.append(torch.randn(2000, 250))
"""
)
FAST_LEAK = (
    TORCH
    + """
kept = []
for step in range(100_000):
    train_step(torch.randn(64, 64))
    kept.append(torch.randn(400, 250))
"""
)
SPIKE = (
    TORCH
    + """
for step in range(100_000):
    rows = 3_000_000 if step == 60 else 256
    train_step(torch.randn(rows, 64), 0.04)
"""
)
WORKER = """
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

cache = []


class Images(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if torch.utils.data.get_worker_info().id == 1:
            cache.append(torch.randn(400_000))
        return torch.randn(16)


if __name__ == "__main__":
    model = nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in DataLoader(Images(), batch_size=8, num_workers=2):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
"""
HELPER = """
import subprocess
import sys
import time
import holter

GREEDY = "import time\\nheld = []\\nwhile True:\\n    held.append(bytearray(20_000_000)); time.sleep(0.1)"
for step in range(120):
    time.sleep(0.03)
    holter.step(loss=1.0)
    if step == 40:
        subprocess.run([sys.executable, "-c", GREEDY])
"""
SHELL = "#!/bin/sh\necho preparing\n{python} {script}\necho the end\n"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, memory_cgroup: Callable[[int], Join]) -> Iterator[dict[str, Case]]:
    """Every run that the kernel is to kill, three at a time."""
    folder: Path = tmp_path_factory.mktemp("memory")
    texts = {"leak": LEAK, "fast-leak": FAST_LEAK, "spike": SPIKE, "worker": WORKER, "helper": HELPER}
    texts |= {"torchrun": LEAK, "shell": LEAK}
    cases = {name: Case(folder / name, text) for name, text in texts.items()}
    script = cases["shell"].holter.script(SHELL.format(python=sys.executable, script=cases["shell"].script), "job.sh")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    words = {"shell": ["sh", script], "torchrun": [*launcher, cases["torchrun"].script]}
    names = list(cases)
    while names:
        some, names = names[:3], names[3:]
        for name in some:
            limit = LIMIT + 250 * MB if name == "torchrun" else 300 * MB if name == "helper" else LIMIT
            cases[name].start(words.get(name, ()), before=memory_cgroup(limit))
        for name in some:
            cases[name].finish()
    yield cases
    for one in cases.values():
        one.holter.close()


@pytest.mark.root
@pytest.mark.parametrize("name", ["leak", "fast-leak", "spike", "worker", "torchrun", "shell"])
def test_an_oom_kill_is_told_as_such(killed: dict[str, Case], name: str) -> None:
    """The ending is oom-killed whoever was the victim, with the counter, the limit and each process's memory."""
    ending = killed[name].verdict()["ending"]
    proof = {one["what"]: one["value"] for one in ending["evidence"]}

    assert ending["kind"] == "oom-killed", as_text(killed[name])
    assert proof["kernel"] == "oom_kill 0 → 1 in this container"
    assert re.search(r"(9\d|100) % of the container's limit", proof["peak memory"])
    assert "MB" in proof["process"]


@pytest.mark.root
@pytest.mark.parametrize("name", ["leak", "fast-leak", "worker", "torchrun", "shell"])
def test_growth_over_the_steps_is_a_leak(killed: dict[str, Case], name: str) -> None:
    """Growth that is spread over the steps is a leak, with its rate, however short the training was."""
    first = killed[name].first()

    assert first["cause"].split(".")[0] == "leak", as_text(killed[name])
    assert first["grade"] in ("supported", "established")
    assert re.search(r"\d (KB|MB) per step", first["claim"])


@pytest.mark.root
def test_one_large_step_is_a_spike(killed: dict[str, Case]) -> None:
    """One step far larger than the sixty before it is a spike."""
    first = killed["spike"].first()

    assert (first["cause"], first["grade"]) == ("oversize.spike", "supported"), as_text(killed["spike"])
    assert killed["spike"].verdict()["ending"]["at_step"] == 60
    assert first["culprit"] is not None, "the line at which memory shot up"


@pytest.mark.root
def test_the_curve_is_shown_up_to_the_limit(killed: dict[str, Case]) -> None:
    """The page has the curve, whose last figure is the one at the kill, within 80 columns."""
    page = killed["leak"].page()

    assert re.search(r"run's memory +[\d.]+ MB [▁-█]+ (6[5-9]\d|70\d) MB ── limit 700 MB", page), page
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.root
def test_a_worker_that_was_the_victim_is_named(killed: dict[str, Case]) -> None:
    """The trainer only raised what the loader told it; the verdict names the worker and what it held."""
    ending = killed["worker"].verdict()["ending"]

    assert re.search(r"the kernel killed a data worker \(pid \d+\), which held \d+ MB", ending["claim"])
    assert sum("worker" in one["value"] for one in ending["evidence"] if one["what"] == "process") == 2


@pytest.mark.root
def test_a_helper_that_was_killed_is_a_finding_of_a_completed_run(killed: dict[str, Case]) -> None:
    """The run outlived it: completed, with a finding that says what is missing."""
    verdict = killed["helper"].verdict()

    assert verdict["ending"]["kind"] == "completed", as_text(killed["helper"])
    assert [(one["cause"], one["grade"]) for one in verdict["findings"]] == [("oversize.helper", "established")]


@pytest.mark.root
@pytest.mark.parametrize("held", [10, 420])
def test_a_kill_from_outside_is_no_oom_kill(case, memory_cgroup, wait_for, held: int) -> None:
    """SIGKILL by a person, at low memory and at 60 % of the limit and more, is told as just that."""
    text = f"held = torch.ones({held} * 250_000)\nfor _ in range(10_000):\n    train_step(torch.ones(8, 64), 0.05)\n"
    one = case(TORCH + text)
    one.start(before=memory_cgroup(LIMIT + 250 * MB))
    wait_for(lambda: (one.holter.record() / "timeline").exists() and _trains(one), "training")

    os.kill(one.holter.events("spawned")[0]["pid"], signal.SIGKILL)
    one.finish()

    assert one.kind() == "killed", as_text(one)
    assert one.first()["cause"] == "external.signal"
    assert one.code == 128 + signal.SIGKILL


def _trains(one: Case) -> bool:
    return len(one.holter.timeline("steps")) > 3
