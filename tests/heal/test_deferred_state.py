"""Between a call and the time at which its outputs are computed things change: what is told is as of the call."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.utils.checkpoint import checkpoint  # noqa: E402

from holter.agent.torch.heal.split import Split  # noqa: E402
from tests.heal.test_by_sample import SIZE, STEPS, as_before, both, net  # noqa: E402, F401 - a fixture
from tests.heal.test_split_batch import Agent  # noqa: E402

pytestmark = pytest.mark.torch


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.blocks = nn.Linear(8, 8), net()

    def forward(self, x: Any) -> Any:
        return checkpoint(self.blocks, self.first(x).tanh(), use_reentrant=False)


def test_what_a_checkpoint_computes_again_is_not_a_call_of_its_own() -> None:
    """After a restart each call is run in chunks from the first on: not that of a part within a backward."""
    found = []
    x, y = torch.randn(SIZE, 8), torch.randint(0, 3, (SIZE,))
    for asked in (1, 4):
        torch.manual_seed(0)
        agent, model = Agent(), Checkpointed()
        split = Split(agent, torch, lambda: False)
        split.asked = asked
        split.watch([model])
        F.cross_entropy(model(x), y).backward()
        found.append([p.grad for p in model.parameters()])
        assert agent.told("declined") == []
    del Checkpointed.__call__

    for want, have in zip(*found, strict=True):
        torch.testing.assert_close(have, want)
