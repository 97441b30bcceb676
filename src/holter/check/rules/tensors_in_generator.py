"""A data generator makes its batches with TensorFlow, one operation at a time.

What it does: finds a Python generator that yields what it made with `tf` operations, feeding a training.
Why it halts or slows a run: each operation of the generator runs by itself, on the device that trains and between its
steps: the step waits, the device's memory holds batches that nobody has asked for yet, and nothing is fetched ahead.
Example:
    def batches():
        while True:
            yield tf.random.normal((32, 224, 224, 3)), labels()
Instead:
    def batches():
        while True:
            yield rng.normal(size=(32, 224, 224, 3)).astype("float32"), labels()
When the fix is safe: never by itself: NumPy draws other random numbers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.module import Function, Module, once
from holter.source.values import names_in

CODE = "HLT107"
CAUSE = "input-bound.no-prefetch"
NEEDS = ()
OR_WRITTEN = r"\byield\b"
AND_NEEDS = ("tensorflow",)
CURES = (
    Cure(
        "make samples in parallel and ahead of the step: .map(f, num_parallel_calls=tf.data.AUTOTUNE) and "
        ".prefetch(tf.data.AUTOTUNE) at the end",
        "ds = tf.data.Dataset.from_generator(batches, output_signature=...).prefetch(tf.data.AUTOTUNE)",
        "equivalent",
    ),
)

_COMPUTES = re.compile(r"^tensorflow\.(?:random\.\w+|image\.\w+|io\.(?:read_file|decode_\w+))$")


def examine(module: Module) -> Iterator[Hit]:
    """Look for generators whose yielded names were made with tf operations."""
    if not module.imports.uses("tensorflow"):
        return
    for function in module.functions:
        yields = [node for node in module.within(function) if isinstance(node, ast.Yield) and node.value is not None]
        if not yields or function.decorator_list or not _feeds(module, function):
            continue
        out = {name for node in yields if node.value is not None for name in names_in(node.value)}
        for node in sorted(module.calls_in(function), key=lambda one: one.lineno):
            if not _COMPUTES.search(module.qualified(node.func)) or not (module.loop_of(node)):
                continue
            statement = module.statement_of(node)
            sets = names_in(statement.targets[0]) if isinstance(statement, ast.Assign) else set()
            if sets & out or any(module.inside(node, one) for one in yields):
                claim = f"the generator `{function.name}` makes its batches with TensorFlow, between the steps"
                yield Hit(statement, claim)
                break


def _feeds(module: Module, function: Function) -> bool:
    """Whether the generator is used in a file that trains."""
    return (bool(module.training.step_loops) or module.fits) and function.name in _in_calls(module)


@once
def _in_calls(module: Module) -> set[str]:
    """Give every name that stands in a call."""
    outermost = [call for call in module.calls if not any(isinstance(up, ast.Call) for up in module.ancestors(call))]
    return {name for call in outermost for name in names_in(call)}
