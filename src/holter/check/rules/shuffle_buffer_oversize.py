"""A shuffle buffer that holds whole batches, or tens of thousands of decoded images.

What it does: finds `shuffle(n)` with a large number after `batch`, or after a `map` that decodes images.
Why it halts or slows a run: the buffer is filled before the first element comes out, and holds n of whatever it is
given: of batches, n times the batch. Memory shoots up before the first step.
Example:
    ds = ds.map(decode).batch(64).shuffle(10_000)
Instead:
    ds = ds.shuffle(10_000).map(decode).batch(64)
When the fix is safe: never by itself: another order of samples is another training.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import called_on
from holter.source.module import Module
from holter.source.pipelines import mapped, pipeline_of
from holter.source.values import argument, number

CODE = "HLT405"
CAUSE = "leak.cache-unbounded"
NEEDS = (".shuffle(",)
CURES = (Cure("a smaller shuffle buffer, or shuffle file names instead of samples", "", "changed"),)

_BATCHES = 500
_IMAGES = 10_000
_DECODES = re.compile(r"decode_(?:jpeg|png|image|raw)|parse_single_example")


def examine(module: Module) -> Iterator[Hit]:
    """Look at what each large buffer holds."""
    for call, owner in module.calls_of("shuffle"):
        many = number(module, argument(call, "buffer_size", 0))
        if many is None or many < _BATCHES:
            continue
        found = pipeline_of(module, owner)
        if found is None:
            continue
        methods = found.methods
        at = max((index for index, one in enumerate(methods) if one in ("batch", "padded_batch")), default=-1)
        if at >= 0 and "unbatch" not in methods[at:]:
            each = number(module, argument(found.calls[at], "batch_size", 0))
            whole = f", {many * each:,.0f} samples" if each else ""
            yield Hit(
                module.statement_of(call),
                f"this buffer holds {many:,.0f} whole batches{whole}, and fills before the first step",
            )
        elif many >= _IMAGES and any(_decodes(module, one) for one in found.calls):
            yield Hit(
                module.statement_of(call),
                f"this buffer holds {many:,.0f} decoded images, and fills before the first step",
            )


def _decodes(module: Module, call: ast.Call) -> bool:
    function = mapped(module, call) if called_on(call, "map") is not None else None
    return function is not None and bool(_DECODES.search(module.said(function)))
