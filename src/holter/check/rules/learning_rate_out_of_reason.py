"""A learning rate that is far outside of what its optimizer takes.

What it does: finds a rate, written as a number, that is hundreds of times the usual one for its optimizer, or none.
Why it halts or slows a run: Adam and its kin move every weight by about the rate at each step, whatever the gradient:
at 1.0 the weights are gone in a few steps, and the loss becomes non-finite.
Example:
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0)
Instead:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
When the fix is safe: never by itself: only the author knows the rate that was meant.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.problem import Hit, Level
from holter.finding import Cure
from holter.source.bindings import dotted
from holter.source.module import Module, once
from holter.source.training import MARKS
from holter.source.values import argument, number

CODE = "HLT205"
CAUSE = "nan.learning-rate"
NEEDS = ("optim",)
AND_NEEDS = (*MARKS, ".fit")
CURES = (Cure("a smaller learning rate", "", "changed"),)

# The largest rate that still has a use, by optimizer.
_LARGEST_RATE = {
    "adam": 0.1,
    "adamw": 0.1,
    "nadam": 0.1,
    "radam": 0.1,
    "adamax": 0.2,
    "rmsprop": 0.1,
    "lion": 0.03,
    "sgd": 10,
}


def examine(module: Module) -> Iterator[Hit]:
    """Look at optimizers of a file that trains a model, with no schedule that scales their rate."""
    for call in module.calls:
        full = module.qualified(call.func)
        kind = full.rpartition(".")[2].lower()
        torch, keras = full.startswith(("torch.optim.", "transformers.")), full.startswith("keras.optimizers.")
        if full.startswith("optax."):
            torch, kind = True, kind
        if not (torch or keras) or kind not in _LARGEST_RATE:
            continue
        position = 1 if full.startswith(("torch.optim.", "transformers.")) else 0
        given = argument(call, "lr") or argument(call, "learning_rate") or argument(call, "", position)
        rate = number(module, given)
        if rate is None or given is None or 0 < rate <= _LARGEST_RATE[kind] or (rate == 0 and not torch):
            continue
        if rate == 0 or not _trains(module, call) or _scheduled(module):
            continue
        usual = "0.001" if kind != "sgd" else "0.1"
        name = full.rpartition(".")[2]
        level: Level = "error" if rate > 5 * _LARGEST_RATE[kind] else "warning"
        yield Hit(module.statement_of(call), f"a learning rate of {rate:g} for {name}; the usual one is {usual}", level)


def _trains(module: Module, call: ast.Call) -> bool:
    """Whether the optimizer is for a model: weights of a model, or a Keras compile, in a file with a loop or a fit."""
    if "model" not in ast.unparse(call).lower() and "parameters()" not in ast.unparse(call):
        used = re.search(r"compile\(|apply_gradients|optax", module.text)
        if used is None:
            return False
    return module.fits or bool(module.training.step_loops)


@once
def _scheduled(module: Module) -> bool:
    return bool(re.search(r"LambdaLR|lr_lambda|[Ss]chedule|warmup|get_lr|lr_finder|param_groups", module.text)) or any(
        dotted(call.func).endswith("LearningRateScheduler") for call in module.calls
    )
