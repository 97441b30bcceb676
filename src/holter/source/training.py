"""Which loops train: where gradients are made and applied, and what runs once for each step."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING

from holter.source.bindings import called_on, dotted

if TYPE_CHECKING:
    from holter.source.module import Function, Loop, Module

_OPTIMIZER = re.compile(r"(?:^|_)opt(?:im(?:izer)?s?)?(?:_|\d|$)|optim", re.I)
# Objects whose backward() takes the loss as its argument.
_TAKES_LOSS = re.compile(r"(?:^|\.)(?:accelerator|fabric|self\.fabric|engine|model_engine|\w*_engine)$", re.I)
# Without one of these in its text, a file has no mark of a training.
MARKS = (".backward", ".manual_backward", ".step", "apply_gradients", "train_on_batch")
NO_GRAD = ("torch.no_grad", "torch.inference_mode")


class Training:
    """The marks of a training in a file: backward(), step(), apply_gradients(), train_on_batch()."""

    def __init__(self, module: Module) -> None:
        self.module = module

    @cached_property
    def backwards(self) -> list[ast.Call]:
        """Every call that computes gradients of a loss."""
        return [call for call in self.module.calls if self.lost(call) is not None]

    def backwards_of(self, loop: Loop) -> list[ast.Call]:
        """Those that a loop runs at each turn, and no loop within it."""
        return self._backwards_by_loop.get(loop, [])

    @cached_property
    def backwards_in(self) -> dict[ast.AST, list[ast.Call]]:
        """The same by the function, or the module, that they stand in."""
        found: dict[ast.AST, list[ast.Call]] = {}
        for call in self.backwards:
            found.setdefault(self.module.scope_of(call), []).append(call)
        return found

    @cached_property
    def _backwards_by_loop(self) -> dict[Loop, list[ast.Call]]:
        found: dict[Loop, list[ast.Call]] = {}
        for call in self.backwards:
            loop = self.module.loop_of(call)
            if loop is not None:
                found.setdefault(loop, []).append(call)
        return found

    def lost(self, call: ast.Call) -> ast.expr | None:
        """Give the loss whose gradients a call computes, if it does."""
        func = call.func
        if not isinstance(func, ast.Attribute) or not self.module.imports.uses(*_TORCH):
            return None
        if func.attr == "manual_backward" and call.args:
            return call.args[0]
        if func.attr != "backward":
            return None
        owner = dotted(func.value)
        if _TAKES_LOSS.search(owner):
            return call.args[0] if call.args else None
        if owner in ("self", "super", "ctx") or (
            isinstance(func.value, ast.Call) and dotted(func.value.func) == "super"
        ):
            return None
        if len(call.args) > 1 or owner.startswith("torch."):
            return None
        inner: ast.expr = func.value
        if isinstance(inner, ast.Call) and called_on(inner, "scale") is not None:
            inner = inner.args[0] if inner.args else inner
        return inner

    @cached_property
    def steps(self) -> list[ast.Call]:
        """Every call that applies gradients: an optimizer's step, a scaler's, apply_gradients, train_on_batch."""
        return [call for call in self.module.calls if self.is_step(call)]

    def is_step(self, call: ast.Call) -> bool:
        applies = called_on(call, "apply_gradients", "train_on_batch") is not None
        return applies or self.optimizer_of(call) is not None

    def optimizer_of(self, call: ast.Call) -> ast.expr | None:
        """Give the optimizer that `optimizer.step()` or `scaler.step(optimizer)` moves."""
        owner = called_on(call, "step")
        if owner is None:
            return None
        if self.is_optimizer(owner):
            return owner
        if call.args and self.is_optimizer(call.args[0]):
            return call.args[0]
        return None

    def is_optimizer(self, node: ast.expr) -> bool:
        kind = self.module.kinds.of(node)
        if kind:
            return kind in ("torch-optimizer", "keras-optimizer")
        return bool(_OPTIMIZER.search(dotted(node).rpartition(".")[2]))

    @cached_property
    def step_loops(self) -> dict[Loop, list[ast.Call]]:
        """The innermost loops around the marks of a training, with those marks; also through functions of the file."""
        found: dict[Loop, list[ast.Call]] = {}
        for mark in (*self.backwards, *self.steps):
            for call in self._turns(mark, 3):
                loop = self.module.loop_of(call)
                if loop is not None:
                    found.setdefault(loop, []).append(mark)
        return found

    def _turns(self, call: ast.Call, depth: int) -> list[ast.Call]:
        """Give the calls in loops that lead to a call: itself, or those of the function that it stands in."""
        if self.module.loop_of(call) is not None:
            return [call]
        function = self.module.function_of(call)
        if function is None or depth == 0:
            return []
        found = []
        for caller in self.module.callers(function):
            if self.module.function_of(caller) is not function:
                found += self._turns(caller, depth - 1)
        return found

    def without_gradients(self, node: ast.AST) -> bool:
        """Whether a node runs under no_grad, inference_mode or the like, as far as this file can say."""
        module = self.module
        if self._switched_off:
            return True
        for above in module.ancestors(node):
            if isinstance(above, (ast.With, ast.AsyncWith)) and any(
                self._no_grad(item.context_expr) for item in above.items
            ):
                return True
        function = module.function_of(node)
        return function is not None and self._function_without(function, 3)

    def _function_without(self, function: Function, depth: int) -> bool:
        for decorator in function.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if self._no_grad(decorator) or re.search(r"no_grad|inference_mode|torch_no_grad", dotted(target)):
                return True
        callers = self.module.callers(function)
        outer = self.module.function_of(function)
        if outer is not None and self._function_without(outer, 0):
            return True
        return bool(callers) and depth > 0 and all(self._call_without(call, depth - 1) for call in callers)

    def _call_without(self, call: ast.Call, depth: int) -> bool:
        for above in self.module.ancestors(call):
            if isinstance(above, (ast.With, ast.AsyncWith)) and any(
                self._no_grad(item.context_expr) for item in above.items
            ):
                return True
        function = self.module.function_of(call)
        return function is not None and self._function_without(function, depth)

    def _no_grad(self, node: ast.expr) -> bool:
        call = node if isinstance(node, ast.Call) else None
        target = call.func if call is not None else node
        full = self.module.qualified(target) or dotted(target)
        if full in NO_GRAD or full.rpartition(".")[2] in ("no_grad", "inference_mode", "no_grad_context"):
            return True
        return full.endswith("set_grad_enabled") and call is not None  # its argument may be a flag: be quiet

    @cached_property
    def _switched_off(self) -> bool:
        for call in self.module.calls:
            name = dotted(call.func)
            if name.endswith("set_grad_enabled") and isinstance(self.module.parents.get(call), ast.Expr):
                return True
        return False


_TORCH = ("torch", "lightning", "pytorch_lightning", "accelerate", "transformers", "torchvision", "torch_geometric",
          "diffusers", "fairseq", "peft", "timm", "trl")  # fmt: skip
