"""A dataset holds a lock, and worker processes take it with them.

What it does: finds a Dataset that makes a `threading` lock or queue in `__init__` and uses it in `__getitem__`, behind
a DataLoader with workers.
Why it halts or slows a run: a forked worker gets the lock as it stands: if another thread holds it at that moment,
nobody in the worker will ever release it, and the run hangs in its first batch. Workers that are spawned can't be sent
one at all.
Example:
    class Reader(Dataset):
        def __init__(self):
            self.lock = threading.Lock()
Instead:
    class Reader(Dataset):
        def __init__(self):
            self.lock = None            # each worker makes its own, at its first sample
When the fix is safe: never by itself: a lock that guards something shared by all processes has to be another kind.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import dotted
from holter.source.datasets import class_of_dataset, loaders, with_workers
from holter.source.module import Module
from holter.source.values import argument, names_in

CODE = "HLT408"
CAUSE = "hang.worker"
NEEDS = ("threading", "queue")
AND_NEEDS = ("DataLoader",)
CURES = (
    Cure(
        "the spawn start method where a fork copied a held lock", "or make the lock in the worker, at its first sample"
    ),
)

_LOCKS = ("threading.Lock", "threading.RLock", "threading.Condition", "threading.Semaphore", "queue.Queue",
          "threading.BoundedSemaphore", "threading.Event")  # fmt: skip


def examine(module: Module) -> Iterator[Hit]:
    """Look at the datasets of this file that loaders with workers draw from."""
    for call in loaders(module):
        given = argument(call, "dataset", 0)
        owner = class_of_dataset(module, given) if given is not None and with_workers(module, call) else None
        if not isinstance(owner, ast.ClassDef):
            continue
        methods = {one.name: one for one in owner.body if isinstance(one, ast.FunctionDef)}
        start = methods.get("__init__")
        gets = [methods[name] for name in ("__getitem__", "__iter__") if name in methods]
        if start is None or not gets:
            continue
        for node in ast.walk(start):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                name = dotted(node.targets[0])
                if module.qualified(node.value.func) in _LOCKS and any(name in names_in(one) for one in gets):
                    before = f"`{name}` is made before the workers of line {call.lineno}"
                    claim = f"{before}, and each worker gets a copy of its present state"
                    yield Hit(node, claim, "error")
