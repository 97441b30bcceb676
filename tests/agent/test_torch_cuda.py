"""PyTorch on a GPU under the agent: nothing is ever made to wait. Needs CUDA; run by hand where there is one."""

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
    import sys, time, torch
    from torch import nn
    torch.manual_seed(3)
    torch.use_deterministic_algorithms(True, warn_only=True)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 8)).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 256, device="cuda"), torch.randn(64, 8, device="cuda")
    losses = []
    for i in range(1500):
        if i == 5:
            torch.cuda.set_sync_debug_mode("error")   # any call that makes the device wait now raises
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        losses.append(loss.detach())
        time.sleep(0.002)
    torch.cuda.set_sync_debug_mode("default")
    print([v.item().hex() for v in losses])
"""


def test_no_synchronise_and_the_same_losses(tmp_path: Path) -> None:
    """With PyTorch's own alarm for synchronising calls set, none goes off, and every loss is the same bit for bit."""
    plain = run(tmp_path / "plain", TRAIN, agent=False, CUDA_VISIBLE_DEVICES="0", CUBLAS_WORKSPACE_CONFIG=":4096:8")
    watched = run(tmp_path / "watched", TRAIN, CUDA_VISIBLE_DEVICES="0", CUBLAS_WORKSPACE_CONFIG=":4096:8")

    assert plain.code == 0, plain.err
    assert watched.code == 0, watched.err
    assert watched.out == plain.out
    assert watched.kind("guest-error") == []


def test_a_model_that_moves_after_its_optimizer_was_made_trains_as_before(tmp_path: Path) -> None:
    """As Accelerate does it: the small gradient that is read at each step lies on the device then."""
    script = """
        import torch
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
        opt = torch.optim.Adam(model.parameters())
        x, losses = torch.randn(64, 16), []
        for step in range(40):
            if step in (0, 20):
                model.to("cuda" if step else "cpu")
            loss = model(x.to(model[0].weight.device)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step() if step < 20 else None
            losses.append(loss.item().hex())
        print(losses)
    """
    plain, watched = (run(tmp_path / str(one), script, agent=one, CUDA_VISIBLE_DEVICES="0") for one in (False, True))

    assert (watched.code, watched.out) == (0, plain.out)
    assert watched.kind("guest-error") == []


def test_losses_norms_and_memory_come_back_late(tmp_path: Path) -> None:
    """The record holds losses, a gradient norm and the allocator's figures, each read when it was there."""
    from holter.record import ring_format as f
    from holter.record.ring_reader import RingView
    from holter.record.steps import devices, window

    done = run(tmp_path, TRAIN, CUDA_VISIBLE_DEVICES="0", CUBLAS_WORKSPACE_CONFIG=":4096:8")
    (ring,) = (tmp_path / "guests").glob("*.ring")
    slots = list(RingView(ring.read_bytes()).slots())
    late = [slot for slot in slots if slot.kind == f.LATE and slot.flags & f.F_LOSS_KNOWN]
    truth = [float.fromhex(v) for v in eval(done.out)]
    (device,) = devices(1, slots, 0.0)
    line = window(1, slots, 0.0)

    assert len(late) >= 4
    for slot in late:
        assert slot.loss == pytest.approx(truth[slot.step - 1])
    assert any(slot.kind == f.LATE and slot.flags & f.F_GRAD_KNOWN for slot in slots)
    assert device["peak"] >= device["allocated"] > 0
    assert line is not None
    assert line["last"] == 1500


def test_cuda_graphs_and_compiled_models_work_as_before(tmp_path: Path) -> None:
    """A captured step replays, and a compiled model makes as many graphs as without us."""
    script = """
        import warnings, torch
        from torch import nn
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = nn.Linear(16, 16).cuda()
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
        x = torch.randn(8, 16, device="cuda")
        def step():
            loss = model(x).square().mean()
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            return loss
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3): step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()
        for _ in range(20): graph.replay()
        print(loss.item().hex())
        compiled = torch.compile(nn.Linear(16, 16).cuda(), backend="eager", fullgraph=True)
        opt2 = torch.optim.SGD(compiled.parameters(), lr=0.01)
        for _ in range(4):
            compiled(x).mean().backward(); opt2.step()
        from torch._dynamo.utils import counters
        print(counters["stats"]["unique_graphs"], dict(counters["graph_break"]))
    """
    plain = run(tmp_path / "plain", script, agent=False, CUDA_VISIBLE_DEVICES="0")
    watched = run(tmp_path / "watched", script, CUDA_VISIBLE_DEVICES="0")

    assert plain.code == 0, plain.err
    assert (watched.code, watched.out) == (0, plain.out), watched.err
