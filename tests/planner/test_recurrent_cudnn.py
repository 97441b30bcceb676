"""A GPU's recurrent layers are drawn without a GPU: PyTorch itself has no shapes for them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from holter.planner.torch.ledger import ledger_class  # noqa: E402

LSTM, GRU = 2, 3


@pytest.mark.parametrize("mode", [LSTM, GRU])
@pytest.mark.parametrize("both_ways", [False, True])
def test_one_step_has_the_shapes_and_keeps_its_gates(mode: int, both_ways: bool) -> None:
    """Forward and backward through autograd, as `nn.LSTM` and `nn.GRU` call them on a GPU."""
    cell = (torch.nn.LSTM if mode == LSTM else torch.nn.GRU)(24, 32, 2, batch_first=True, bidirectional=both_ways)
    ways = 2 if both_ways else 1
    with FakeTensorMode(allow_non_fake_inputs=True), ledger_class(torch)("cpu") as ledger:
        weights = [torch.empty_like(one, requires_grad=True) for one in cell._flat_weights]
        x = torch.empty(5, 7, 24, requires_grad=True)
        h = torch.zeros(2 * ways, 5, 32)
        c = h if mode == LSTM else None
        out, last, *_ = torch._cudnn_rnn(
            x, weights, 4, None, h, c, mode, 32, 0, 2, True, 0.0, True, both_ways, [], None
        )
        held = sum(ledger.timeline.events[n][2] for n in range(len(ledger.timeline.events)))
        out.sum().backward()

    assert out.shape == (5, 7, 32 * ways)
    assert last.shape == (2 * ways, 5, 32)
    assert [one.grad.shape for one in weights] == [one.shape for one in weights]
    assert x.grad.shape == x.shape
    gates = 4 if mode == LSTM else 3
    assert held > 4 * gates * 2 * ways * 5 * 7 * 32
