"""A training step on fake tensors: every operation with its shapes, and not one byte of memory.

Model and optimizer are copied with their tensors exchanged for fake ones, so nothing of the user's is touched. A first
step makes the optimizer's state; the next is the one that is written down.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Collection, Iterator
from typing import Any

from ..timeline import Timeline
from .blocks import checkpointed
from .ledger import Unseen, ledger_class
from .step import Recipe, batch_for, drop_gradients, one_step, optimizer_for


class Fakes:
    """The copies of one recipe's model and optimizer, ready for steps of any size."""

    def __init__(self, torch: Any, recipe: Recipe, device: Any, stands_for: str, unseen: Unseen | None) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode

        self.torch, self.recipe, self.device, self.unseen = torch, recipe, device, unseen
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.kind = device.type
        self.ledger = ledger_class(torch)
        memo: dict[int, Any] = {}
        given = recipe.optimizer
        tensors = [*recipe.model.parameters(), *recipe.model.buffers()]
        is_made = isinstance(given, torch.optim.Optimizer)
        if is_made:
            tensors += [p for group in given.param_groups for p in group["params"]]
        for tensor in tensors:
            if id(tensor) not in memo:
                memo[id(tensor)] = self._fake(tensor)
        if is_made:
            for owner, state in given.state.items():
                for value in state.values() if isinstance(state, dict) else ():
                    if isinstance(value, torch.Tensor):
                        here = value.dim() == 0 and value.device.type == "cpu" and owner.device.type != "cpu"
                        memo[id(value)] = self._fake(value, torch.device("cpu") if here else None)
        self.model = copy.deepcopy(recipe.model, memo)
        self.model.train()
        self.optimizer = copy.deepcopy(given, memo) if is_made else optimizer_for(torch, given, self.model.parameters())
        self._choose_kernels(stands_for)
        self.warm = False

    def _fake(self, tensor: Any, device: Any = None) -> Any:
        torch = self.torch
        with self.mode:
            empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device or self.device)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
        return empty

    def _choose_kernels(self, stands_for: str) -> None:
        """On a GPU PyTorch updates all parameters at once by default; for fake ones it would not."""
        if self.optimizer is None:
            return
        for group in self.optimizer.param_groups:
            if "foreach" in group and group["foreach"] is None and not group.get("fused"):
                group["foreach"] = stands_for == "cuda" and not group.get("differentiable")

    def trace(self, rows: int, heap: Any = None) -> Timeline:
        """One step of this many samples, as a timeline; its blocks are taken from a heap, if one is given."""
        torch, recipe = self.torch, self.recipe
        with self._quietly(), self.mode, checkpointed(torch, self.model, recipe.checkpointing):
            if not self.warm:
                self._step(self.ledger(self.kind), rows, first=True)
                self.warm = True
            ledger = self.ledger(self.kind, self.unseen, heap)
            self._step(ledger, rows, first=False)
            found: Timeline = ledger.finish()
            return found

    def calls(self, rows: int, wanted: Collection[str]) -> dict[str, Any]:
        """Some operations of a step of this many samples, with what they are called with: fake tensors."""
        with self._quietly(), self.mode, checkpointed(self.torch, self.model, self.recipe.checkpointing):
            ledger = self.ledger(self.kind, self.unseen, None, wanted)
            self._step(ledger, rows, first=False)
            ledger.finish()
            found: dict[str, Any] = ledger.kept
            return found

    def _step(self, ledger: Any, rows: int, first: bool) -> None:
        torch, recipe = self.torch, self.recipe
        recipe = recipe.with_(accumulates=recipe.accumulates and not first)
        with ledger:
            if not recipe.accumulates:
                drop_gradients(self.model, self.optimizer)
            self._see_what_stays(ledger)
            ledger.timeline.mark("batch")
            batch = batch_for(torch, recipe, rows, self.device, fake=True)
            hooks = [
                p.register_post_accumulate_grad_hook(lambda q: ledger.see(q.grad, "gradients"))
                for p in self.model.parameters()
                if p.requires_grad
            ]
            try:
                one_step(torch, recipe, self.model, self.optimizer, batch, self.kind, ledger.timeline.mark)
            finally:
                for hook in hooks:
                    hook.remove()
            self._see_what_stays(ledger)

    def _see_what_stays(self, ledger: Any) -> None:
        for tensor in [*self.model.parameters(), *self.model.buffers()]:
            ledger.see(tensor, "parameters")
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                ledger.see(parameter.grad, "gradients")
        if self.optimizer is not None:
            for tensor in _tensors(self.torch, dict(self.optimizer.state)):
                ledger.see(tensor, "optimizer")

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        torch = self.torch
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            yield


def _tensors(torch: Any, value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(torch, one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(torch, one)
