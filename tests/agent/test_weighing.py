"""What a container holds is estimated from a few of its elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from holter.agent.retained.size import Weigher  # noqa: E402
from holter.agent.torch.retained.objects import TorchKinds  # noqa: E402
from tests.agent.agent_run import run  # noqa: E402

pytestmark = pytest.mark.torch
ACTIVATION = 512 * 256 * 4


def pair(model: Any) -> tuple[Any, Any]:
    """A loss whose graph backward has used up, and an output whose graph is whole."""
    x = torch.ones(512, 64)
    loss = model(x).pow(2).mean()
    loss.backward()
    return loss, model(x)


@pytest.mark.parametrize("order", [1, -1])
def test_every_tensor_of_an_element_is_looked_into(order: int) -> None:
    """The loss holds nothing any more; the output beside it holds the activations, whichever comes first."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    seen = [pair(model)[::order] for _ in range(40)]

    found = Weigher([TorchKinds(torch)]).container(seen, len(seen))

    assert (found.graph, found.saved) == (True, True)
    assert found.host > 40 * ACTIVATION
    assert found.host < 2 * 40 * ACTIVATION


def test_a_graph_that_two_tensors_share_is_counted_once() -> None:
    """An output and the loss that was made of it."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))

    def both() -> tuple[Any, Any]:
        out = model(torch.ones(512, 64))
        return out, out.pow(2).mean()

    found = Weigher([TorchKinds(torch)]).container([both() for _ in range(40)], 40)

    assert 40 * ACTIVATION < found.host < 2 * 40 * ACTIVATION


def test_a_dtype_that_is_its_own_base_is_weighed_and_does_not_hang(tmp_path: Path) -> None:
    """Types that ml_dtypes adds to NumPy are of a class that calls itself `numpy`, as arrays are."""
    pytest.importorskip("ml_dtypes")
    script = """
        import ml_dtypes, numpy
        from _holter.agent.retained.size import Weigher
        made = [numpy.ones((2048, 4), "float32") for _ in range(2)]
        print(int(Weigher([]).container([numpy.dtype(ml_dtypes.bfloat16), *made], 3).host))
        """
    done = run(tmp_path, script)

    assert done.code == 0, done.err
    assert int(done.out) > 0
