"""PyTorch datasets: which class a loader draws from."""

from __future__ import annotations

import ast

from holter.source.bindings import dotted
from holter.source.module import Module
from holter.source.values import argument, number

_WRAPS = ("torch.utils.data.Subset", "torch.utils.data.random_split", "torch.utils.data.ConcatDataset")


def class_of_dataset(module: Module, node: ast.expr, depth: int = 5) -> ast.ClassDef | str | None:
    """Give the class of this file, or the full name of a known one, that a dataset is an instance of."""
    if depth == 0:
        return None
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = dotted(node)
        found = [one for one in module.bound(node, name) if one.how in ("set", "part")]
        return class_of_dataset(module, found[-1].value, depth - 1) if found and found[-1].value is not None else None
    if isinstance(node, ast.Call):
        full = module.qualified(node.func)
        if full in _WRAPS and node.args:
            return class_of_dataset(module, node.args[0], depth - 1)
        if full:
            return full
        if isinstance(node.func, ast.Name):
            return next((one for one in module.classes if one.name == node.func.id), None)
    return None


def with_workers(module: Module, call: ast.Call) -> bool:
    """Whether a DataLoader is visibly asked for worker processes."""
    workers = argument(call, "num_workers", 5)
    if workers is None or (isinstance(workers, ast.Constant) and workers.value is None):
        return False
    return number(module, workers) != 0


def loaders(module: Module) -> list[ast.Call]:
    return [call for call in module.calls if module.qualified(call.func).endswith("utils.data.DataLoader")]
