"""torch's own catalogue of modules, optimizers and operations as a suite for bench/guests.py.

Each test hands on its digits: whatever a change by the last bit, an operation more or a lost gradient would alter.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

STEPS = 3


class Digits:
    """A digest over all that is handed to it, to the last bit."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def add(self, *things: Any) -> None:
        for leaf in tree_leaves(things):
            if isinstance(leaf, torch.Tensor):
                dense = leaf.detach().to_dense() if leaf.layout is not torch.strided else leaf.detach()
                self.hash.update(f"{dense.dtype}{tuple(dense.shape)}".encode())
                flat = dense.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).flatten()
                self.hash.update(flat.view(torch.uint8).numpy().tobytes())
            else:
                self.hash.update(repr(type(leaf)).encode() + str(leaf)[:0].encode())

    def text(self) -> str:
        return self.hash.hexdigest()[:16]


class Seen(TorchDispatchMode):
    """The operations that a dispatch mode of the user's sees."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def _loss(output: Any) -> Any:
    parts = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    return sum(part.abs().sum() for part in parts) if parts else None


def _fresh(thing: Any) -> Any:
    """Inputs of their own for each pass, since a module may write into them."""

    def one(leaf: Any) -> Any:
        return leaf.detach().clone().requires_grad_(leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf

    return tree_map(one, thing)


def _id(info: Any) -> str:
    return str(info.formatted_name if hasattr(info, "formatted_name") else info.name)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("info", module_db, ids=_id)
def test_module(info: Any, training: bool, record_property: Any) -> None:
    """Outputs and gradients of each of torch's modules, over steps, under func transforms, a dispatch mode and fx."""
    dtype = torch.float32 if torch.float32 in info.dtypes else info.dtypes[0]
    digits = {sort: Digits() for sort in ("results", "transforms", "dispatch", "fx")}
    torch.manual_seed(7)
    inputs = info.module_inputs_func(info, "cpu", dtype, requires_grad=True, training=training)
    for given in inputs[:4]:
        made, called = given.constructor_input, given.forward_input
        module = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
        if called is None:
            continue
        _trained(module, called, digits["results"])
        _transformed(module, called, digits["transforms"])
        _dispatched(module, called, digits["dispatch"])
        _traced(module, digits["fx"])
    record_property("digits", " ".join(f"{sort} {one.text()[:6]}" for sort, one in digits.items()))


def _trained(module: Any, called: Any, digits: Digits) -> None:
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=1e-3, momentum=0.9) if weights else None
    for _ in range(STEPS):
        args, kwargs = _fresh((called.args, called.kwargs))
        output = module(*args, **kwargs)
        loss = _loss(output)
        if loss is not None:
            loss.backward()
        digits.add(output, [weight.grad for weight in weights], [getattr(x, "grad", None) for x in tree_leaves(args)])
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
    digits.add(module.state_dict())


def _transformed(module: Any, called: Any, digits: Digits) -> None:
    weights = dict(module.named_parameters())
    if not weights:
        return
    args, kwargs = _fresh((called.args, called.kwargs))

    def scalar(held: Any) -> Any:
        loss = _loss(torch.func.functional_call(module, held, args, kwargs))
        return loss if loss is not None else sum(one.sum() for one in held.values())

    try:
        digits.add(torch.func.grad(scalar)({name: weight.detach().clone() for name, weight in weights.items()}))
    except (RuntimeError, ValueError) as error:
        digits.hash.update(type(error).__name__.encode())  # what torch itself can't transform, in each way alike


def _dispatched(module: Any, called: Any, digits: Digits) -> None:
    args, kwargs = _fresh((called.args, called.kwargs))
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    seen = Seen()
    with seen:
        loss = _loss(module(*args, **kwargs))
        if loss is not None:
            loss.backward()
            if weights:
                torch.optim.SGD(weights, lr=1e-3).step()
    digits.hash.update(" ".join(seen.names).encode())


def _traced(module: Any, digits: Digits) -> None:
    class Around(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: Any) -> Any:
            return self.inner(x) + 1

    try:
        digits.hash.update(str(torch.fx.symbolic_trace(Around()).graph).encode())
    except (TypeError, torch.fx.proxy.TraceError) as error:
        digits.hash.update(type(error).__name__.encode())


@pytest.mark.parametrize("info", optim_db, ids=lambda info: info.optim_cls.__name__)
def test_optimizer(info: Any, record_property: Any) -> None:
    """Each of torch's optimizers with each of its settings: weights and states after some steps."""
    digits = Digits()
    for given in info.optim_inputs_func(device="cpu"):
        torch.manual_seed(3)
        if info.only_supports_sparse_grads:
            table = torch.nn.Embedding(8, 4, sparse=True)
            model, x = table, torch.tensor([1, 5, 5])
        else:
            model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
            x = torch.randn(5, 6)
        weights: Any = list(model.parameters())
        if info.optim_cls.__name__ == "Muon":
            weights = [weight for weight in weights if weight.ndim == 2]
        optimizer = info.optim_cls(weights, **given.kwargs)

        def closure(model: Any = model, x: Any = x, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        for _ in range(STEPS):
            if info.step_requires_closure:
                digits.add(optimizer.step(closure))
            else:
                digits.add(closure())
                optimizer.step()
        digits.add(model.state_dict(), optimizer.state_dict()["state"])
    record_property("digits", digits.text())


@pytest.mark.parametrize("info", op_db, ids=_id)
def test_operation(info: Any, record_property: Any) -> None:
    """An operation with torch's own sample inputs inside a module's forward: its result and its gradients."""
    if torch.float32 not in info.supported_dtypes("cpu") or info.name.startswith("jiterator"):
        pytest.skip("not for float32 on a CPU")
    torch.manual_seed(5)
    digits = Digits()

    class Calls(torch.nn.Module):
        def forward(self, given: Any) -> Any:
            return info(given.input, *given.args, **given.kwargs)

    model = Calls()
    for _, given in zip(range(2), info.sample_inputs("cpu", torch.float32, requires_grad=info.supports_autograd)):  # noqa: B905
        output = model(given)
        loss = _loss(output) if info.supports_autograd else None
        if loss is not None:
            loss.abs().backward()
            digits.add([getattr(x, "grad", None) for x in tree_leaves((given.input, given.args))])
        if not info.name.startswith(("empty", "new_empty")):
            digits.add(output)
    record_property("digits", digits.text())
