"""Which device a script asks for: the CPU on purpose, a GPU, or neither."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from holter.source.lines import called_name, tree_of

_CPU = ("cpu", "cpu:0", "/cpu:0", "/device:cpu:0")
_GPU = ("cuda", "mps", "gpu", "hip", "xpu")
# Which say the CPU of something else: a file's tensors, results that are taken home.
_ASIDE = ("map_location",)
_TAKEN_HOME = ("to", "load", "device_put")
# Keywords of trainers (Transformers, Accelerate) that choose the CPU.
_KEYWORDS = ("use_cpu", "no_cuda", "cpu")
_HIDES = ("set_visible_devices", "set_default_device")


def chooses_cpu(lines: Sequence[str]) -> bool:
    """Tell whether the script says that it is to run on the CPU, and not just where there is no GPU."""
    tree = tree_of(lines)
    if tree is None:
        return False
    said = list(_unconditional(tree))
    if any(_hides_gpu(node) for node in said):
        return True
    aside = {id(part) for node in said for part in _of_something_else(node)}
    named = [node for node in said if _is_cpu(node)]
    return any(id(node) not in aside for node in named) or (bool(named) and not mentions_gpu(lines))


def mentions_gpu(lines: Sequence[str]) -> bool:
    """Tell whether a GPU is asked for anywhere, be it only where there is one."""
    tree = tree_of(lines)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.lower().lstrip("/").split(":")[0] in (*_GPU, "device") and not _is_cpu(node):
                return True
        elif isinstance(node, ast.Attribute) and node.attr in _GPU:
            return True
    return False


def _unconditional(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk through all but what stands in a choice between devices: `"cuda" if ... else "cpu"`."""
    ahead = [tree]
    while ahead:
        node = ahead.pop()
        yield node
        if isinstance(node, ast.IfExp):
            continue
        if isinstance(node, ast.If) and _asks_for_a_device(node.test):
            continue
        ahead.extend(ast.iter_child_nodes(node))


def _asks_for_a_device(test: ast.expr) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr in (*_GPU, "is_available", "device_count"))
        or (isinstance(node, ast.Call) and called_name(node) in ("list_physical_devices", "is_gpu_available"))
        for node in ast.walk(test)
    )


def _is_cpu(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.lower() in _CPU


def _of_something_else(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.keyword) and node.arg in _ASIDE:
        yield node.value
    elif isinstance(node, ast.Call) and called_name(node) in _TAKEN_HOME:
        yield from node.args
    elif isinstance(node, ast.Compare):  # `if device == "cpu"` asks
        yield from (node.left, *node.comparators)


def _hides_gpu(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg in _KEYWORDS and isinstance(node.value, ast.Constant) and node.value.value is True
    if isinstance(node, ast.Call) and called_name(node) in _HIDES:
        return bool(node.args) and isinstance(node.args[0], (ast.List, ast.Tuple)) and not node.args[0].elts
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        key = node.targets[0].slice
        return isinstance(key, ast.Constant) and key.value == "CUDA_VISIBLE_DEVICES"
    return False
