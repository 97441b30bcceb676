"""Loops that gather the gradients of several batches before each step."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from holter.source.bindings import dotted
from holter.source.module import Loop, Module
from holter.source.values import number


@dataclass(frozen=True)
class Accumulation:
    """The loop, the `if (i + 1) % n == 0` in it, the step below that, the backward beside it, and n."""

    loop: Loop
    gate: ast.If
    step: ast.Call
    backward: ast.Call
    every: ast.expr


def accumulations(module: Module) -> Iterator[Accumulation]:
    """Find every step that a counter gates while backward() runs at each turn."""
    for step in module.training.steps:
        loop = module.loop_of(step)
        if loop is None or module.training.optimizer_of(step) is None:
            continue
        gates = module.conditions(step, loop)
        if not gates:
            continue
        gate = gates[-1]
        modulo = next(
            (one for one in ast.walk(gate.test) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod)), None
        )
        if modulo is None or module.inside(step, gate) is False or step_in_else(module, step, gate):
            continue
        if number(module, modulo.right) == 1 or not _cleared(module, loop, gate):
            continue
        for backward in module.training.backwards_of(loop):
            if not module.conditions(backward, loop) and backward.lineno < gate.lineno:
                yield Accumulation(loop, gate, step, backward, modulo.right)
                break


def step_in_else(module: Module, step: ast.Call, gate: ast.If) -> bool:
    statement: ast.AST = step
    while module.parents[statement] is not gate:
        statement = module.parents[statement]
    return statement in gate.orelse


def _cleared(module: Module, loop: Loop, gate: ast.If) -> bool:
    """Whether gradients are set back only where the step is taken: then they add up in between."""
    clears = [call for call in module.calls_in(loop) if dotted(call.func).endswith("zero_grad")]
    return bool(clears) and all(module.inside(call, gate) for call in clears)
