"""A lambda, or a function within a function, is handed to worker processes.

What it does: finds `collate_fn` or `worker_init_fn` of a DataLoader with workers that is a lambda or a local function.
Why it halts or slows a run: neither can be pickled. Workers that are spawned (macOS, Windows, and Linux from Python
3.14 on) need that: the run dies at the start of its first epoch, on another machine than the one it was tried on.
Example:
    loader = DataLoader(data, num_workers=4, collate_fn=lambda rows: rows)
Instead:
    def as_list(rows):
        return rows
    loader = DataLoader(data, num_workers=4, collate_fn=as_list)
When the fix is safe: never by itself: a lambda that reads local names needs them handed over.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.datasets import loaders, with_workers
from holter.source.module import FUNCTIONS, Module
from holter.source.values import argument

CODE = "HLT407"
CAUSE = None
NEEDS = ("DataLoader",)
CURES = (Cure("a function at the top of the file, or functools.partial of one"),)


def examine(module: Module) -> Iterator[Hit]:
    """Look at the functions that loaders with workers are given."""
    for call in loaders(module):
        if not with_workers(module, call):
            continue
        for name in ("collate_fn", "worker_init_fn"):
            given = argument(call, name)
            if given is not None and _local(module, given):
                what = "a lambda" if isinstance(_value(module, given), ast.Lambda) else "a local function"
                yield Hit(given, f"{name} is {what}, which can't be sent to spawned workers")


def _value(module: Module, node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Name):
        value = module.value(node, node.id)
        return value if value is not None else node
    return node


def _local(module: Module, node: ast.expr) -> bool:
    value = _value(module, node)
    if isinstance(value, ast.Lambda):
        return True
    if not isinstance(value, ast.Name) or module.bound(value, value.id):
        return False
    scope = module.scope_of(node)
    found = [one for one in module.functions if one.name == value.id]
    return len(found) == 1 and isinstance(scope, FUNCTIONS) and module.scope_of(found[0]) is scope
