"""A loss on a GPU that is non-finite: found with its step and history, and the device never made to wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.agent_run import run

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TRAIN = """
    import time, torch
    from torch import nn
    torch.manual_seed(3)
    x = torch.randn(4096, 32); y = x.sum(1, keepdim=True)
    BAD
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=32, pin_memory=True)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses, first = [], True
    for epoch in range(6):
        for a, b in loader:
            a, b = a.cuda(non_blocking=True), b.cuda(non_blocking=True)
            loss = nn.functional.mse_loss(model(a), b)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            time.sleep(0.002)
            if first:
                torch.cuda.set_sync_debug_mode("error")   # any call that makes the device wait now raises
                first = False
    torch.cuda.set_sync_debug_mode("default")
    print([v.item().hex() for v in losses])
"""


@pytest.mark.parametrize(("bad", "rate"), [("x[1000, 3] = float('nan')", "1e-3"), ("pass", "1.0")])
def test_a_nan_on_the_device_is_found_without_a_wait(tmp_path: Path, bad: str, rate: str) -> None:
    """The first bad step, the losses before it, and the sample in the host's own memory; every loss the same."""
    script = TRAIN.replace("BAD", bad).replace("RATE", rate)
    plain = run(tmp_path / "plain", script, agent=False, CUDA_VISIBLE_DEVICES="0")
    watched = run(tmp_path / "watched", script, CUDA_VISIBLE_DEVICES="0")
    (found,) = watched.kind("nan")

    assert watched.code == plain.code == 0, watched.err
    assert watched.out == plain.out
    assert watched.kind("guest-error") == []
    if rate == "1.0":
        assert found["losses"][-1] > 1e3 * found["losses"][0]
        assert "inputs" not in found
    else:
        assert found["step"] == 1000 // 32 + 1
        assert found["inputs"]["row"] == 1000
