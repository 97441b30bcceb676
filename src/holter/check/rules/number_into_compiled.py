"""A compiled function is given a Python number that changes with every turn of the loop.

What it does: finds a `tf.function` called with the counter of a loop or a number made of it, or a `jax.jit` with a
static argument that is one.
Why it halts or slows a run: a Python number is part of the trace: each new value costs a trace or a compilation of tens
of milliseconds to seconds, and its graph stays in memory. The run gets no faster, and grows.
Example:
    for step in range(1000):
        train_step(x, step)             # @tf.function
Instead:
    for step in range(1000):
        train_step(x, tf.constant(step))
When the fix is safe: never by itself: the function may use the number as Python does, in `range()` or as a shape.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.compiled import compiled_calls
from holter.source.module import Module
from holter.source.values import number, short_loop

CODE = "HLT502"
CAUSE = "recompile.scalar"
NEEDS = (".function", "jax")
AND_NEEDS = ("tensorflow", "jit")
CURES = (Cure("pass `step` as a tensor", "- train_step(x, step)\n+ train_step(x, tf.constant(step))"),)


def examine(module: Module) -> Iterator[Hit]:
    """Look at the arguments of compiled functions that are counters of loops."""
    for call, function, static in compiled_calls(module):
        for loop in module.loops_of(call):
            if not isinstance(loop, ast.For) or short_loop(module, loop, 10):
                continue
            counters = _counters(loop)
            for at, given in enumerate(call.args):
                changes = (isinstance(given, ast.Name) and given.id in counters) or _arithmetic(
                    module, given, counters, loop
                )
                if changes and (static is None or at in static):
                    name = ast.unparse(given)
                    cure = Cure(
                        f"pass `{name}` as a tensor",
                        f"- {function}(..., {name})\n+ {function}(..., tf.constant({name}))",
                    )
                    if static is not None:
                        cure = Cure(
                            f"pass `{name}` as a tensor",
                            "leave it out of static_argnums, and use jax.lax for what needs it",
                        )
                    yield Hit(
                        call, f"`{function}` is traced anew for each value of `{name}`, a Python number", "error", cure
                    )
                    break


def _counters(loop: ast.For) -> set[str]:
    """Give the names that a loop sets to Python numbers."""
    over = loop.iter
    if (
        isinstance(over, ast.Call)
        and isinstance(over.func, ast.Name)
        and over.func.id in ("tqdm", "trange")
        and over.args
    ):
        inner = over.args[0]
        over = inner if over.func.id == "tqdm" else over
    if not isinstance(over, ast.Call) or not isinstance(over.func, ast.Name):
        return set()
    if over.func.id in ("range", "trange") and isinstance(loop.target, ast.Name):
        return {loop.target.id}
    if over.func.id == "enumerate" and isinstance(loop.target, ast.Tuple) and isinstance(loop.target.elts[0], ast.Name):
        return {loop.target.elts[0].id}
    return set()


def _arithmetic(module: Module, node: ast.expr, counters: set[str], loop: ast.For) -> bool:
    """Whether an expression is plain arithmetic on a counter: numbers, `math`, and names that the loop so computes."""
    if isinstance(node, ast.Name):
        bound = [one for one in module.bound(node, node.id) if one.how == "set" and module.inside(one.node, loop)]
        return len(bound) == 1 and bound[0].value is not None and _computed(module, bound[0].value, counters)
    return isinstance(node, ast.BinOp) and _computed(module, node, counters)


def _computed(module: Module, node: ast.expr, counters: set[str]) -> bool:
    uses = False
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            called = isinstance(above := module.parents.get(one), ast.Call) and above.func is one
            uses = uses or one.id in counters
            known = one.id in counters or number(module, one) is not None or one.id == "math"
            if not known and not (called and one.id in ("min", "max", "float", "int", "abs")):
                return False
        elif isinstance(one, ast.Attribute):
            if not (isinstance(one.value, ast.Name) and one.value.id == "math"):
                return False
        elif not isinstance(one, (ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop, ast.Load, ast.Call)):
            return False
    return uses
