"""For `holter plan -- COMMAND`: watches the script's first steps, has the plan made from them, and ends the script.

The outermost call of the trained model is kept with what it was given, and the loss that was made of its output. At
the end of the third step the planner, which travels by path as the agent does, draws the same step at other sizes. The
script is ended at once: nothing of it runs after that, so no checkpoint is written by a handler of its own.

A script whose first steps do not fit dies before the third. It is then started once more, and the plan is made of the
first call of its model before that call is run.
"""

from __future__ import annotations

import functools
import gc
import json
import math
import os
import sys
from collections.abc import Callable
from typing import Any

from ...facts.host_memory import highest
from ...record import environment
from ..amounts import bytes_of
from ..aside import aside, can_fork
from ..progress import Tell, quiet, teller
from ..small_steps import plan_by_steps
from .batch import rows_of
from .measured import resident
from .plan import Planner
from .step import Recipe, surrogate

_STEPS = 3
CALLED = "called"  # a file beside the plan: a model was called for training
_LOSSES = (
    "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div",
    "binary_cross_entropy", "binary_cross_entropy_with_logits",
)  # fmt: skip


class PlanWatch:
    """Stands around the calls of all modules until the plan is made."""

    def __init__(self, agent: Any, torch: Any) -> None:
        self.agent, self.torch = agent, torch
        self.order = json.loads(os.environ.get(environment.PLAN) or "{}")
        self.depth = 0
        self.steps = 0
        self.done = False
        self.met = False  # a model was called for training
        self.call: Any = None  # model, args, kwargs, output, precision
        self.loss: Any = None  # function, its output's argument, target, options
        self.peaks: list[int] = []

    def patch(self) -> None:
        self._patch_calls()
        for name in _LOSSES:
            self._patch_loss(name)
        sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(self._stepped)

    def _patch_calls(self) -> None:
        module = self.torch.nn.Module
        inner, watch, torch = module.__call__, self, self.torch

        @functools.wraps(inner)
        def __call__(net: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if watch.done or watch.depth or not torch.is_grad_enabled():
                return inner(net, *args, **kwargs)
            if not watch.met:
                watch.agent.guard(watch._first_call)(net, args, kwargs)
            watch.depth += 1
            try:
                out = inner(net, *args, **kwargs)
            finally:
                watch.depth -= 1
            watch.agent.guard(watch._called)(net, args, kwargs, out)
            return out

        module.__call__ = __call__

    def _first_call(self, net: Any, args: Any, kwargs: Any) -> None:
        if not self._trains(net):
            return
        self.met = True
        with open(os.path.join(self.agent.folder, CALLED), "w"):
            pass
        if not self.order.get("before"):
            return
        mine = {id(p) for p in net.parameters()}
        kind = self.torch.optim.Optimizer
        optimizers = [one for one in gc.get_objects() if issubclass(type(one), kind)]  # asks the object itself nothing
        for optimizer in optimizers:
            if any(id(p) in mine for group in optimizer.param_groups for p in group["params"]):
                self.call = net, args, kwargs, None, self._precision()
                self._plan_and_leave(optimizer)

    @staticmethod
    def _trains(net: Any) -> bool:
        return net.training and any(p.requires_grad for p in net.parameters())

    def _called(self, net: Any, args: Any, kwargs: Any, out: Any) -> Any:
        if not self._trains(net):
            return
        # Only shapes are kept of what it gave: the output itself would hold the step's memory.
        self.call = net, args, kwargs, getattr(out, "shape", None), self._precision()
        self.loss = None

    def _precision(self) -> Any:
        torch = self.torch
        if torch.is_autocast_enabled():
            kind = torch.get_autocast_gpu_dtype()
        elif torch.is_autocast_cpu_enabled():
            kind = torch.get_autocast_cpu_dtype()
        else:
            return None
        return {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(kind)

    def _patch_loss(self, name: Any) -> None:
        functional = self.torch.nn.functional
        inner, watch = getattr(functional, name, None), self
        if inner is None:
            return

        @functools.wraps(inner)
        def loss(given: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if not watch.done and watch.call is not None and given.requires_grad:
                    # The script may hold the function by its first name: ours must not keep what it was given alive.
                    watch.loss = inner, tuple(given.shape), target, args, kwargs
            except Exception as error:
                watch.agent.guard.caught("plan", error)
            return inner(given, target, *args, **kwargs)

        setattr(functional, name, loss)

    def _stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self.done or self.call is None:
            return
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not any(id(p) in mine for p in self.call[0].parameters()):
            return
        self.steps += 1
        if self.steps < _STEPS:
            self.agent.guard(self._begin)()
            return
        self._plan_and_leave(optimizer)

    def _plan_and_leave(self, optimizer: Any) -> None:
        self.done = True
        try:
            plan = self._plan(optimizer)
        except Exception as error:
            plan = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        path = os.path.join(self.agent.folder, "plan.json")
        with open(path + ".new", "w") as file:
            json.dump(plan, file)
        os.replace(path + ".new", path)
        os._exit(0)

    def _begin(self) -> None:
        """Peaks are those of the last step, when all that lasts is there."""
        cuda = self.torch.cuda
        if cuda.is_available() and cuda.is_initialized():
            cuda.reset_peak_memory_stats()

    def _plan(self, optimizer: Any) -> Any:
        return plan_of(self.torch, self.call, self.loss, optimizer, self.order, teller(self.agent.folder))


def plan_of(
    torch: Any,
    call: tuple[Any, ...],
    loss: tuple[Any, ...] | None,
    optimizer: Any,
    order: dict[str, Any],
    tell: Tell = quiet,
) -> Any:
    """The plan as plain data."""
    model, args, kwargs, shape, precision = call
    replayed = _replay(torch, loss, shape)
    batch = {"args": list(args), "kwargs": dict(kwargs), "target": loss[2] if loss and replayed else None}
    rows = rows_of(torch, {"args": batch["args"], "kwargs": batch["kwargs"]})
    if not rows:
        raise ValueError("the model is called without tensors: make the plan from Python, with holter.plan")
    tell("seen", model=type(model).__name__, batch=rows)

    def step(net: Any, given: Any) -> Any:
        found = net(*given["args"], **given["kwargs"])
        if replayed is not None and isinstance(found, torch.Tensor):
            return replayed(found, given["target"])
        own = found.get("loss") if isinstance(found, dict) else getattr(found, "loss", None)
        return own if own is not None else surrogate(torch, found)

    recipe = Recipe(model, batch, rows, optimizer, step=step, precision=precision)
    own = next(iter(model.parameters())).device.type
    kind = order.get("device") or own
    limit = bytes_of(order["memory"]) if order.get("memory") else None
    seen = 0
    if kind == own and not order.get("before"):  # no step was run: nothing was seen
        seen = int(torch.cuda.max_memory_allocated()) if kind == "cuda" else highest() if kind == "cpu" else 0
    held = sum(p.grad.numel() * p.grad.element_size() for p in model.parameters() if p.grad is not None)
    base = max(0, resident() - held) if kind == "cpu" else 0

    def make() -> dict[str, Any]:
        try:
            planner = Planner(torch, recipe, kind, limit, base=base, measures=bool(order.get("measure", True)))
        except Exception as error:
            return plan_by_steps(torch, recipe, kind, limit, base, f"{type(error).__name__}: {str(error)[:160]}")
        if replayed is None and loss is not None:
            planner.notes.append("the script's own loss can't be replayed: what it takes is measured at its batch size")
        if seen:
            planner.learn(rows, seen)
        plan = planner.plan(bool(order.get("table", True)), float(order.get("seconds", 60.0)), tell)
        plan["seen"] = {
            "model": type(model).__name__,
            "parameters": sum(p.numel() * p.element_size() for p in model.parameters()),
            "optimizer": type(optimizer).__name__,
            "inputs": [[list(t.shape), str(t.dtype)] for t in args if isinstance(t, torch.Tensor)],
            "peak": seen,
        }
        return plan

    return aside(make, 600.0) if kind == "cpu" and can_fork() else make()


def _replay(torch: Any, loss: tuple[Any, ...] | None, shape: Any) -> Callable[[Any, Any], Any] | None:
    """The script's loss as a function of the model's output, where it was made of it as it is or flattened."""
    if loss is None or shape is None:
        return None
    function, given, target, args, kwargs = loss
    if not isinstance(target, torch.Tensor):
        return None
    if tuple(shape) == given and target.dim() and int(target.shape[0]) == int(shape[0]):
        return lambda out, to: function(out, to, *args, **kwargs)
    count = math.prod(int(n) for n in shape)
    if len(given) == 2 and given[0] * given[1] == count and given[1] == shape[-1]:
        flat = target.dim() == 1

        def over_rows(out: Any, to: Any) -> Any:
            flattened = out.reshape(-1, out.shape[-1])
            if flat:  # the target was flattened with it, and does not grow by rows of the batch
                to = torch.zeros(flattened.shape[0], dtype=target.dtype, device=flattened.device)
            return function(flattened, to, *args, **kwargs)

        return over_rows
    return None
