"""`steps_per_epoch` asks an input for more epochs than it has.

What it does: finds `fit(..., steps_per_epoch=n, epochs=m)` on a generator that ends, or on a tf.data pipeline with no
`repeat()`.
Why it halts or slows a run: Keras goes on where the last epoch stopped: when the input has run out it warns, and ends
the epochs that are left early or trains them on nothing. The exit code is 0.
Example:
    model.fit(dataset.batch(32), steps_per_epoch=100, epochs=10)
Instead:
    model.fit(dataset.batch(32).repeat(), steps_per_epoch=100, epochs=10)
When the fix is safe: never by itself: leaving out `steps_per_epoch` may be what was meant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import dotted
from holter.source.module import Module
from holter.source.pipelines import pipeline_of
from holter.source.values import argument, number, spread

CODE = "HLT207"
CAUSE = "early-stop.input-exhausted"
NEEDS = ("steps_per_epoch",)
CURES = (Cure("dataset.repeat() before fit, or leave steps_per_epoch out so that it is counted", "", "equivalent"),)


def examine(module: Module) -> Iterator[Hit]:
    """Look at each `fit` of a Keras model with a number of steps."""
    for call, _ in module.calls_of("fit", "fit_generator"):
        if spread(call):
            continue
        steps, epochs = argument(call, "steps_per_epoch"), argument(call, "epochs")
        given = argument(call, "x", 0) or argument(call, "generator", 0)
        if steps is None or epochs is None or given is None or _none(steps) or number(module, epochs) in (0, 1):
            continue
        pipeline = pipeline_of(module, given)
        if pipeline is not None and pipeline.whole:
            if "repeat" not in pipeline.methods and not _endless_root(module, pipeline.root_call):
                if pipeline.root.endswith(("load", "from_directory")) or "apply" in pipeline.methods:
                    continue
                claim = f"`{ast.unparse(given)}` has no repeat(): it runs out before the last of the epochs"
                yield Hit(module.statement_of(call), claim)
        elif _ends(module, given):
            claim = f"the generator `{ast.unparse(given)}` ends after one pass: the later epochs find nothing in it"
            yield Hit(module.statement_of(call), claim, "error")


def _none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _endless_root(module: Module, root: ast.Call | None) -> bool:
    """Whether a dataset comes from a generator, which may never end."""
    if root is None or not dotted(root.func).endswith("from_generator"):
        return False
    given = argument(root, "generator", 0)
    function = next((one for one in module.functions if given is not None and one.name == dotted(given)), None)
    return function is None or not _finite(module, function)


def _ends(module: Module, given: ast.expr) -> bool:
    if isinstance(given, ast.Name):
        value = module.value(given, given.id)
        if value is None:
            return False
        given = value
    function = module.callee(given) if isinstance(given, ast.Call) else None
    return function is not None and _finite(module, function)


def _finite(module: Module, function: ast.AST) -> bool:
    """Whether a generator function has yields, all of them in `for` loops, and nothing that goes on for ever."""
    yields = [node for node in module.within(function) if isinstance(node, (ast.Yield, ast.YieldFrom))]
    if not yields or any(isinstance(node, (ast.While, ast.YieldFrom)) for node in module.within(function)):
        return False
    loops = [node for node in module.within(function) if isinstance(node, ast.For)]
    plain = all("cycle" not in (said := ast.unparse(one.iter)) and "count(" not in said for one in loops)
    known = all(
        isinstance(one.iter, ast.Call) and dotted(one.iter.func) in ("range", "zip", "enumerate") for one in loops
    )
    return plain and known and not (isinstance(function, ast.FunctionDef) and function.decorator_list)
