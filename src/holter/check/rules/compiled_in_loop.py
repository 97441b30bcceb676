"""A function is compiled anew at each turn of a loop.

What it does: finds `tf.function` inside a loop of something that does not depend on the loop, and `jax.jit` there of a
lambda, a partial or a function that the loop defines; also in a function that a loop calls.
Why it halts or slows a run: what was traced before belongs to another function object and is never used again: each
turn pays for a trace of seconds, and the old graphs stay in memory. (`torch.compile` and `jax.jit` of one and the same
function find what they compiled before: nothing is said about those.)
Example:
    for epoch in range(epochs):
        step = tf.function(train_step)
        step(x, y)
Instead:
    step = tf.function(train_step)
    for epoch in range(epochs):
        step(x, y)
When the fix is safe: never by itself: moving a definition out of a loop may change what its names refer to.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.module import FUNCTIONS, Function, Module
from holter.source.values import literal_loop, names_in, set_within, short_loop

CODE = "HLT504"
CAUSE = "recompile.closure"
NEEDS = ("tf.function", ".function(", "jax")
AND_NEEDS = ("tensorflow", "jit", "pmap")
CURES = (Cure("make it once, before the loop, and call it in the loop"),)

_MAKERS = ("tensorflow.function", "jax.jit", "jax.pmap")


def examine(module: Module) -> Iterator[Hit]:
    """Look at calls and decorators that compile, in loops that do not change what is compiled."""
    for call in module.calls:
        full = module.qualified(call.func)
        if (
            full in _MAKERS
            and _new_each_time(module, full, call)
            and not isinstance(module.parents.get(call), FUNCTIONS)
        ):
            loop = module.loop_of(call)
            if loop is not None and _same_each_turn(module, loop, call, names_in(call)):
                maker = full.replace("tensorflow", "tf")
                claim = f"{maker} makes a new function at each turn: no trace is used again"
                yield Hit(module.statement_of(call), claim, "error")
    for function in module.functions:
        if not module.decorated_by(function, _MAKERS):
            continue
        loop = module.loop_of(function)
        if loop is None:
            yield from _in_called(module, function)
            continue
        own = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
        read = {name for name in names_in(function) if "." not in name} - own
        inner = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        if _same_each_turn(module, loop, function, read - inner):
            yield Hit(function, f"`{function.name}` is defined and compiled anew at each turn of the loop", "error")


def _new_each_time(module: Module, full: str, call: ast.Call) -> bool:
    """Whether a call compiles what nothing was compiled for yet; JAX knows a function again by its identity."""
    given = call.args[0] if call.args else None
    if given is None or full.startswith("tensorflow"):
        return given is not None
    partial = isinstance(given, ast.Call) and module.qualified(given.func) == "functools.partial"
    return partial or isinstance(given, ast.Lambda)


def _same_each_turn(module: Module, loop: ast.For | ast.AsyncFor | ast.While, node: ast.AST, read: set[str]) -> bool:
    if short_loop(module, loop) or literal_loop(module, loop) or module.conditions(node, loop):
        return False
    above = module.parents.get(node)
    if isinstance(above, ast.Attribute) and above.attr in ("lower", "trace"):
        return False  # it is looked at, not used
    for outer in module.loops_of(node):
        if read & set_within(module, outer):
            return False
    return "_dynamo.reset" not in module.said(loop) and "clear_session" not in module.said(loop)


def _in_called(module: Module, function: Function) -> Iterator[Hit]:
    """Look at a compiled function inside of another that a loop calls: it is made anew by each call."""
    outer = module.parents.get(function)
    if not isinstance(outer, FUNCTIONS) or outer.decorator_list or outer.name.startswith("__"):
        return
    calls = module.callers(outer)
    own = {one.arg for one in ast.walk(outer.args) if isinstance(one, ast.arg)}
    inner = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)} | {function.name}
    if not calls or (own | set_within(module, outer)) & (names_in(function) - inner):
        return
    # Handed out or kept, it is used again.
    for node in module.within(outer):
        if isinstance(node, ast.Name) and node.id == function.name and isinstance(node.ctx, ast.Load):
            above = module.parents.get(node)
            if not (isinstance(above, ast.Call) and above.func is node):
                return
    loops = [loop for call in calls if (loop := module.loop_of(call)) is not None and not short_loop(module, loop)]
    if len(loops) == len(calls):
        where = f"`{outer.name}`, which line {loops[0].lineno} makes in a loop"
        claim = f"`{function.name}` is compiled anew by each call of {where}"
        yield Hit(function, claim, "error")
