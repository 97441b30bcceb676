"""On a GPU a training goes back when its weights are non-finite, and the device is never made to wait for it."""

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
    x = torch.randn(65536, 32); y = x.sum(1, keepdim=True)
    BAD
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=32, pin_memory=True)
    model = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1)).cuda()
    optimizer = torch.optim.OPTIMIZER
    losses, step = [], 0
    for a, b in loader:
        step += 1
        a, b = a.cuda(non_blocking=True), b.cuda(non_blocking=True)
        loss = nn.functional.mse_loss(model(a), b)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        time.sleep(0.002)
        if step == 3:
            torch.cuda.set_sync_debug_mode("error")   # any call that makes the device wait now raises
    torch.cuda.set_sync_debug_mode("default")
    print([v.item().hex() for v in losses[-50:]])
    print(all(bool(p.isfinite().all()) for p in (*model.parameters(), *model.buffers())))
"""
ADAM = "Adam(model.parameters(), lr=1e-3)"


def test_one_bad_batch_is_undone_without_a_wait(tmp_path: Path) -> None:
    """The loss comes back late, the weights are asked, and the last good state takes their place."""
    script = TRAIN.replace("BAD", "x[40000, 3] = float('nan')").replace("OPTIMIZER", ADAM)
    healed = run(tmp_path, script, HOLTER_HEAL="1", CUDA_VISIBLE_DEVICES="0")

    assert healed.code == 0, healed.err
    assert healed.kind("guest-error") == []
    assert healed.out.splitlines()[-1] == "True"
    (told,) = healed.kind("intervention")
    assert (told["act"], told["keeps"]) == ("go-back", "equivalent")
    assert 1251 < told["step"] < 1251 + 800
    without = script.replace("x[40000, 3] = float('nan')", "pass")
    plain = run(tmp_path / "plain", without, agent=False, CUDA_VISIBLE_DEVICES="0")
    wanted, found = ([float.fromhex(v) for v in eval(one.out.splitlines()[0])] for one in (plain, healed))
    assert sum(found) == pytest.approx(sum(wanted), rel=0.1)  # a tenth of the batches before was not learnt from


def test_a_run_in_which_nothing_is_wrong_is_the_same_to_the_last_bit_on_a_gpu(tmp_path: Path) -> None:
    """Copies of its state are made all along, and neither its numbers nor its streams notice."""
    script = TRAIN.replace("BAD", "pass").replace("OPTIMIZER", ADAM)
    plain = run(tmp_path / "plain", script, agent=False, CUDA_VISIBLE_DEVICES="0")
    armed = run(tmp_path / "armed", script, HOLTER_HEAL="1", CUDA_VISIBLE_DEVICES="0")

    assert (armed.out, armed.code) == (plain.out, 0)
    assert armed.kind("guest-error") == armed.kind("intervention") == armed.kind("declined") == []
