"""A compiled function is given a tensor whose shape changes with every turn of the loop.

What it does: finds a `tf.function` or a `jax.jit` called in a loop with a slice that ends at the loop's counter.
Why it halts or slows a run: each new shape costs a trace or a compilation of tens of milliseconds to minutes, and stays
in memory: the loop compiles instead of computing.
Example:
    for t in range(1, length):
        out = decode(tokens[:, :t])     # @tf.function
Instead:
    for t in range(1, length):
        out = decode(tokens, t_mask[t])  # one shape, the rest masked
When the fix is safe: never by itself: padding needs a mask, and a signature with open sizes does not help XLA.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.compiled import compiled_calls
from holter.source.module import Module
from holter.source.values import names_in, short_loop, targets_of

CODE = "HLT503"
CAUSE = "recompile.shape"
NEEDS = (".function", "jax")
AND_NEEDS = ("tensorflow", "jit")
CURES = (
    Cure("let one trace serve all shapes", "- @tf.function\n+ @tf.function(reduce_retracing=True)"),
    Cure("pad the batches to a few fixed lengths", "", "equivalent"),
)


def examine(module: Module) -> Iterator[Hit]:
    """Look at slices and sizes that depend on the counter."""
    for call, function, static in compiled_calls(module):
        for loop in module.loops_of(call):
            over = loop.iter if isinstance(loop, ast.For) else None
            if not isinstance(loop, ast.For) or not isinstance(over, ast.Call) or short_loop(module, loop, 10):
                continue
            if not isinstance(over.func, ast.Name) or over.func.id != "range":
                continue
            counters = targets_of(loop)
            for given in call.args:
                if _changes(given, counters):
                    cure = CURES[1] if static is not None else CURES[0]
                    claim = f"`{function}` is traced anew for each length of `{ast.unparse(given)}`"
                    yield Hit(call, claim, "error", cure)
                    break


def _changes(node: ast.expr, counters: set[str]) -> bool:
    """Whether an argument is a slice with just one end at the counter."""
    if not isinstance(node, ast.Subscript):
        return False
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for part in parts:
        if isinstance(part, ast.Slice):
            low = part.lower is not None and bool(names_in(part.lower) & counters)
            high = part.upper is not None and bool(names_in(part.upper) & counters)
            if low != high:
                return True
    return False
