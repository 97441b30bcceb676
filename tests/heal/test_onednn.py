"""oneDNN that once found no memory for its code makes none in that thread any more: the run goes on without it."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the soft wall is Linux' RLIMIT_DATA"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="oneDNN makes code of its own on x86_64"),
    pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this PyTorch is built without oneDNN"),
]

SCRIPT = """
import json, resource
import torch
from torch import nn
from holter.agent.torch.heal.split import Split
from tests.heal.test_split_batch import Agent

torch.set_num_threads(1)
HIGH = 1 << 40


class Tight(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        if len(x) > 6:
            taken = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_DATA, (taken + 4096, -1))
        try:
            return self.conv(x)
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (HIGH, -1))


resource.setrlimit(resource.RLIMIT_DATA, (HIGH, -1))
torch.manual_seed(0)
model, agent, x = Tight(), Agent(), torch.randn(12, 3, 20, 20)
Split(agent, torch, lambda: False).watch([model])
model(x).pow(2).mean().backward()
found = model.conv.weight.grad.sum().item()
with torch.backends.mkldnn.flags(enabled=False):
    model.zero_grad()
    model.conv(x).pow(2).mean().backward()
print(json.dumps([found, model.conv.weight.grad.sum().item(), [said.get("text") for _, said in agent.said]]))
"""


def test_a_batch_is_split_without_it() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    found, wanted, said = json.loads(done.stdout)
    assert found == pytest.approx(wanted, rel=1e-4)
    assert any("oneDNN found no memory for its code" in text for text in said if text)
