"""A dataset of many Python objects is read by several worker processes.

What it does: finds a Dataset that holds a list of texts, dicts or tuples read from a file, behind a DataLoader with
workers.
Why it halts or slows a run: a forked worker shares memory with the trainer until it touches it, and reading a Python
object writes its reference count: within an epoch every worker has a copy of the whole list, and the run is killed for
lack of memory while the trainer itself has not grown.
Example:
    class Lines(Dataset):
        def __init__(self, path):
            self.lines = open(path).read().splitlines()
Instead:
    class Lines(Dataset):
        def __init__(self, path):
            self.lines = np.array(open(path).read().splitlines(), dtype=np.bytes_)
When the fix is safe: never by itself: `__getitem__` has to read the new form.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import called_on, dotted
from holter.source.datasets import class_of_dataset, loaders, with_workers
from holter.source.module import Module
from holter.source.values import argument

CODE = "HLT406"
CAUSE = "leak.worker-copy"
NEEDS = ("num_workers",)
CURES = (
    Cure("hold the samples in arrays or tensors, one for each field: there are no reference counts in them"),
    Cure("use fewer workers"),
)

_READS = re.compile(
    r"json\.loads?\(|\.readlines\(\)|\.splitlines\(\)|csv\.(?:reader|DictReader)\(|to_dict\(['\"]records|"
    r"pickle\.load\(|\.iterrows\(\)|yaml\.(?:safe_)?load\("
)


def examine(module: Module) -> Iterator[Hit]:
    """Look at the datasets of this file that loaders with workers draw from."""
    for call in loaders(module):
        given = argument(call, "dataset", 0)
        if given is None or not with_workers(module, call):
            continue
        owner = class_of_dataset(module, given)
        if not isinstance(owner, ast.ClassDef):
            continue
        held = _held(module, owner)
        if held is not None:
            line, name = held
            copies = f"each worker of line {call.lineno} ends up with a copy of it"
            claim = f"`{name}` is a list of Python objects, and {copies}"
            yield Hit(line, claim)


def _held(module: Module, owner: ast.ClassDef) -> tuple[ast.stmt, str] | None:
    """Give the line of __init__ that fills a list which __getitem__ reads."""
    methods = {one.name: one for one in owner.body if isinstance(one, ast.FunctionDef)}
    start, get = methods.get("__init__"), methods.get("__getitem__")
    if start is None or get is None:
        return None
    read = {dotted(node.value) for node in ast.walk(get) if isinstance(node, ast.Subscript)}
    read = {name for name in read if name.startswith("self.")}
    for node in ast.walk(start):
        if isinstance(node, ast.Assign) and dotted(node.targets[0]) in read:
            said = ast.unparse(node.value)
            array = re.search(r"np\.|numpy|torch\.|pa\.", said)
            if _READS.search(said) and not array:
                return node, dotted(node.targets[0])
        if isinstance(node, ast.Call) and (grown := called_on(node, "append")) is not None:
            name = dotted(grown)
            loop = module.loop_of(node)
            rows = node.args and isinstance(node.args[0], ast.Dict)
            if name in read and loop is not None and (rows or _READS.search(module.said(loop))):
                return module.statement_of(node), name
    return None
