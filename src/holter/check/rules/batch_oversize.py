"""The activations of one batch, added up layer by layer, take a gigabyte or more.

What it does: adds up what the layers of a Keras `Sequential` put out for one batch, where the script says every size.
Why it halts or slows a run: all of it is kept until the backward pass has used it, and gradients take as much again. On
a machine with shared memory the system swaps first: the run stalls with an idle device, and may be killed with no
message.
Example:
    batch_size = 512  # of 100 x 100 images through 32 filters: 1.2 GB of activations
    model.train_on_batch(x[:batch_size], y[:batch_size])
Instead:
    batch_size = 64         # and accumulate the gradients of 8 batches, for the same update
    model.train_on_batch(x[:batch_size], y[:batch_size])
When the fix is safe: never by itself: another batch size is another training.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import called_on, dotted
from holter.source.layers import activations
from holter.source.module import Module
from holter.source.values import argument, number
from holter.units import size

CODE = "HLT110"
CAUSE = "oversize.batch"
NEEDS = ("Sequential",)
AND_NEEDS = (".fit", "train_on_batch")
CURES = (Cure("a smaller batch with gradient accumulation: half of it, and two steps added up", "", "equivalent"),)

_LARGE_BATCH_BYTES = 1e9


def examine(module: Module) -> Iterator[Hit]:
    """Look at each call that trains a model whose layers can be read."""
    for call, owner in module.calls_of("fit", "train_on_batch"):
        if module.kinds.of(owner) != "keras-model":
            continue
        each = activations(module, owner)
        batch = _batch(module, call)
        if each and batch and each * batch >= _LARGE_BATCH_BYTES:
            kept = f"about {size(each * batch)} of activations ({size(each)} for each of {batch:,.0f} samples)"
            yield Hit(
                module.statement_of(call),
                f"one step of `{dotted(owner)}` keeps {kept}, and gradients as much again",
            )


def _batch(module: Module, call: ast.Call) -> float | None:
    if called_on(call, "fit") is not None:
        return number(module, argument(call, "batch_size"))
    given = call.args[0] if call.args else None
    if isinstance(given, ast.Name):
        given = module.value(given, given.id)
    if isinstance(given, ast.Subscript) and isinstance(given.slice, ast.Slice):
        return _width(module, given.slice)
    return None


def _width(module: Module, part: ast.Slice) -> float | None:
    """Give how many rows `x[i : i + n]` or `x[:n]` has."""
    if part.lower is None:
        return number(module, part.upper)
    end = part.upper
    added = isinstance(end, ast.BinOp) and isinstance(end.op, ast.Add) and ast.dump(end.left) == ast.dump(part.lower)
    return number(module, end.right) if added and isinstance(end, ast.BinOp) else None
