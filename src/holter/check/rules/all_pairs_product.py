"""A matrix times its own transpose, over all samples at once.

What it does: finds `x @ x.T` where `x` is known to have a thousand rows or more, or to be everything a loop collected.
Why it halts or slows a run: the result has as many entries as the square of the rows: twice the data needs four times
the memory, and one step far larger than all others is where a run that went well dies. A fused or compiled kernel does
not help.
Example:
    embeddings = torch.cat(collected)
    similar = embeddings @ embeddings.T
Instead:
    embeddings = torch.cat(collected)
    for part in embeddings.split(1024):
        best = (part @ embeddings.T).topk(10)
When the fix is safe: never by itself: what follows needs the whole matrix, or does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import dotted
from holter.source.module import Module
from holter.source.shapes import collected, first_size
from holter.source.values import argument

CODE = "HLT109"
CAUSE = "oversize.spike"
NEEDS = ("matmul(", ".mm(", ".dot(")
OR_WRITTEN = r"@ *\w+\.(?:T|mT|t\(\))"
CURES = (Cure("do that work in chunks, in smaller batches", "+ for part in x.split(1024): ...", "equivalent"),)

_MIN_ROWS = 1000
_MATMULS = ("tensorflow.matmul", "tensorflow.linalg.matmul", "torch.matmul", "torch.mm", "jax.numpy.dot",
            "jax.numpy.matmul")  # fmt: skip


def examine(module: Module) -> Iterator[Hit]:
    """Look at products of a name with its own transpose."""
    for product in module.products:
        if isinstance(product.op, ast.MatMult):
            yield from _judge(module, product, product.left, product.right)
    for call in module.calls:
        if module.qualified(call.func) in _MATMULS and len(call.args) >= 2:
            flag = argument(call, "transpose_b", 3)
            plain = isinstance(flag, ast.Constant) and flag.value is True
            yield from _judge(module, call, call.args[0], call.args[1], plain)


def _judge(module: Module, node: ast.expr, left: ast.expr, right: ast.expr, plain: bool = False) -> Iterator[Hit]:
    name = dotted(left)
    if not name or not (dotted(right) == name if plain else _transposed(module, right) == name):
        return
    rows = first_size(module, left)
    if rows is not None and rows >= _MIN_ROWS:
        size = f"{rows:,.0f} x {rows:,.0f}"
        yield Hit(node, f"`{name}` has {rows:,.0f} rows: the product with its own transpose has {size} entries, "
                        "and grows with the square of the rows")  # fmt: skip
    elif collected(module, left):
        yield Hit(node, f"`{name}` holds all that a loop collected: the product with its own transpose grows with the "
                        "square of the data")  # fmt: skip


def _transposed(module: Module, node: ast.expr) -> str:
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        return dotted(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("t", "transpose") and not module.qualified(node.func):
            return dotted(node.func.value)
        if module.qualified(node.func) in ("tensorflow.transpose", "torch.t", "torch.transpose", "jax.numpy.transpose"):
            return dotted(node.args[0]) if node.args else ""
    return ""
