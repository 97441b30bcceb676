"""A tf.data pipeline feeds a training and fetches nothing ahead.

What it does: finds a pipeline, seen from its source to the `fit` or the loop that trains, with no `prefetch` in it.
Why it halts or slows a run: the device waits while a batch is made, and the pipeline waits while the device computes:
each step takes the sum of both.
Example:
    ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
    model.fit(ds, epochs=5)
Instead:
    ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(32).prefetch(tf.data.AUTOTUNE)
    model.fit(ds, epochs=5)
When the fix is safe: always: the batches and their order stay the same. It is made where the last part of the pipeline
stands in an assignment.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.edits import after
from holter.check.problem import Edit, Hit
from holter.finding import Cure
from holter.source.bindings import called_on, dotted
from holter.source.module import Module
from holter.source.pipelines import pipeline_of
from holter.source.values import argument

CODE = "HLT401"
CAUSE = "input-bound.no-prefetch"
NEEDS = ("tf.data", "tensorflow.data", "data.Dataset")
AND_NEEDS = ("tensorflow",)
CURES = (
    Cure(
        "make samples in parallel and ahead of the step: .map(f, num_parallel_calls=tf.data.AUTOTUNE) and "
        ".prefetch(tf.data.AUTOTUNE) at the end",
        "ds = ds.map(f, num_parallel_calls=tf.data.AUTOTUNE).batch(n).prefetch(tf.data.AUTOTUNE)",
        "equivalent",
    ),
)


def examine(module: Module) -> Iterator[Hit]:
    """Look at what `fit` and the loops that train draw from."""
    if not module.imports.uses("tensorflow"):
        return
    for call, _ in module.calls_of("fit"):
        given = argument(call, "x", 0)
        if given is not None:
            yield from _judge(module, given)
    for loop in module.training.step_loops:
        if isinstance(loop, ast.For):
            over = loop.iter
            if isinstance(over, ast.Call) and dotted(over.func) in ("enumerate", "tqdm") and over.args:
                over = over.args[0]
            yield from _judge(module, over)


def _judge(module: Module, given: ast.expr) -> Iterator[Hit]:
    given = called_on(given, "take", "skip") or given
    found = pipeline_of(module, given)
    if found is None or not found.whole or not found.root.startswith("tensorflow.data."):
        return
    methods = found.methods
    if not {"batch", "map", "padded_batch"} & set(methods) or {"prefetch", "apply", "with_options"} & set(methods):
        return
    if "prefetch" in module.said(module.scope_of(given)) or found.root_call is None:
        return
    last = found.calls[-1]
    claim = "nothing is fetched ahead of the step: the training waits for each batch to be made"
    yield Hit(module.statement_of(last), claim, "note", None, _fix(module, given, last))


def _fix(module: Module, given: ast.expr, last: ast.Call) -> tuple[Edit, ...]:
    statement = module.statement_of(last)
    if not isinstance(given, ast.Name) or not isinstance(statement, ast.Assign) or statement.value is not last:
        return ()
    name = next((local for local, full in module.imports.names.items() if full == "tensorflow"), None)
    # Only at the place where the name gets its last value: what is done to it later has to come before a prefetch.
    bound = module.bindings.last(given, given.id)
    if name is None or bound is None or bound.node is not statement or dotted(statement.targets[0]) != given.id:
        return ()
    return (after(last, f".prefetch({name}.data.AUTOTUNE)"),)
