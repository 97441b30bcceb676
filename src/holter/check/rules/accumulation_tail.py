"""Gradients of the last batches of an epoch never become a step.

What it does: finds a step that is taken every n batches of a loader, with nothing that takes one for the rest.
Why it halts or slows a run: when the number of batches is not a multiple of n, the gradients of the last ones are lost
at the end of the run, and in between they leak into the first step of the next epoch.
Example:
    for i, (x, y) in enumerate(loader):
        (loss(model(x), y) / 4).backward()
        if (i + 1) % 4 == 0:
            optimizer.step(); optimizer.zero_grad()
Instead:
    for i, (x, y) in enumerate(loader):
        (loss(model(x), y) / 4).backward()
        if (i + 1) % 4 == 0 or i + 1 == len(loader):
            optimizer.step(); optimizer.zero_grad()
When the fix is safe: never by itself: it adds a step to each epoch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.accumulation import Accumulation, accumulations
from holter.source.module import Module
from holter.source.values import is_loader, statements_after

CODE = "HLT204"
CAUSE = None
NEEDS = ("zero_grad",)
CURES = (Cure("take the step after the last batch, too", "+ or i + 1 == len(loader)", "changed"),)


def examine(module: Module) -> Iterator[Hit]:
    """Look at gates that know only the counter, over batches that end."""
    for found in accumulations(module):
        if not isinstance(found.loop, ast.For) or not is_loader(module, found.loop.iter):
            continue
        if isinstance(found.gate.test, ast.BoolOp) or not _by_batch(found) or _steps_later(module, found):
            continue
        every = ast.unparse(found.every)
        lost = "the gradients of the last ones are lost, or leak into the next epoch"
        claim = f"when the batches are not a multiple of {every}, {lost}"
        yield Hit(found.gate, claim)


def _by_batch(found: Accumulation) -> bool:
    """Whether the counter is that of this very loop: one that runs on over all epochs loses only the last part."""
    assert isinstance(found.loop, ast.For)
    target = found.loop.target
    counter = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
    names = {one.id for one in ast.walk(found.gate.test) if isinstance(one, ast.Name)}
    over = found.loop.iter
    counted = isinstance(over, ast.Call) and "enumerate" in ast.unparse(over)
    return counted and isinstance(counter, ast.Name) and counter.id in names


def _steps_later(module: Module, found: Accumulation) -> bool:
    for statement in statements_after(module, found.loop):
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and module.training.optimizer_of(node) is not None:
                return True
    return False
