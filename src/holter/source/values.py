"""Numbers, texts and arguments that can be read off a script."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.source.bindings import dotted
from holter.source.module import Module


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """Give an argument by its name, or by its position."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if position is not None and len(call.args) > position and not any(isinstance(a, ast.Starred) for a in call.args):
        return call.args[position]
    return None


def spread(call: ast.Call) -> bool:
    """Whether a call passes on arguments that can't be seen."""
    return any(keyword.arg is None for keyword in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)


def number(module: Module, node: ast.expr | None, depth: int = 4) -> float | None:
    """Give the number that an expression is, through simple names and arithmetic; None where it is not known."""
    if node is None or depth == 0:
        return None
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (int, float)) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number(module, node.operand, depth - 1)
        return -inner if inner is not None else None
    if isinstance(node, ast.BinOp):
        left, right = number(module, node.left, depth - 1), number(module, node.right, depth - 1)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Pow) and abs(right) < 64 and abs(left) < 1e6:
            return float(left**right) if left or right > 0 else None
        return None
    if isinstance(node, ast.Name):
        bound = module.bound(node, node.id)
        values = {number(module, one.value, depth - 1) if one.how == "set" else None for one in bound}
        return values.pop() if len(values) == 1 else None
    return None


def text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def names_in(node: ast.AST) -> set[str]:
    """Give every plain name that an expression reads, and the dotted ones of `self`."""
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return found | {name for one in ast.walk(node) if isinstance(one, ast.Attribute) and (name := dotted(one))}


def targets_of(loop: ast.For | ast.AsyncFor | ast.While) -> set[str]:
    """Give the names that a loop sets at each turn."""
    if isinstance(loop, ast.While):
        return set()
    return {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)}


def set_within(module: Module, outer: ast.AST) -> set[str]:
    """Give the names that are set anywhere within a node."""
    found: set[str] = set()
    for node in module.within(outer):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(dotted(node))
    if isinstance(outer, (ast.For, ast.AsyncFor)):
        found |= targets_of(outer)
    return found


def short_loop(module: Module, loop: ast.For | ast.AsyncFor | ast.While, least: int = 6) -> bool:
    """Whether a loop visibly has only a few turns: a literal list, or range() of a small number."""
    if isinstance(loop, ast.While):
        return False
    over = loop.iter
    if isinstance(over, ast.Call) and dotted(over.func) in ("enumerate", "zip", "tqdm", "sorted", "reversed", "list"):
        over = over.args[0] if over.args else over
    if isinstance(over, ast.Name):
        value = module.value(over, over.id)
        over = value if value is not None else over
    if isinstance(over, (ast.List, ast.Tuple, ast.Set)):
        return len(over.elts) < least
    if isinstance(over, ast.Dict):
        return len(over.keys) < least
    if isinstance(over, ast.Call) and dotted(over.func) in ("range", "trange") and over.args:
        many = number(module, over.args[0] if len(over.args) == 1 else over.args[1])
        return many is not None and many < least
    return False


def literal_loop(module: Module, loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Whether a loop goes over a list that stands in the script: cases of a test, settings to compare."""
    if isinstance(loop, ast.While):
        return False
    over = loop.iter
    if isinstance(over, ast.Call) and dotted(over.func) in ("enumerate", "zip", "product", "itertools.product"):
        over = over.args[0] if over.args else over
    if isinstance(over, ast.Name):
        value = module.value(over, over.id)
        over = value if value is not None else over
    return isinstance(over, (ast.List, ast.Tuple, ast.Set, ast.Dict))


def is_loader(module: Module, node: ast.expr) -> bool:
    """Whether a loop over an expression is one over batches: a loader by its making or by its name."""
    while isinstance(node, ast.Call) and node.args and not isinstance(node.args[0], ast.Starred):
        if dotted(node.func).rpartition(".")[2] not in (
            "enumerate",
            "tqdm",
            "iter",
            "track",
            "zip",
            "trange",
            "islice",
        ):
            break
        node = node.args[0]
    if module.kinds.of(node) in ("loader", "tf-dataset"):
        return True
    name = dotted(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2].lower()
    return "loader" in name or name.endswith("_dl") or name in ("dl", "train_iter", "data_iter", "batches", "train_ds")


def statements_after(module: Module, node: ast.stmt) -> Iterator[ast.stmt]:
    """Give the statements that follow one in the same block."""
    above = module.parents.get(node)
    for block in ("body", "orelse", "finalbody"):
        rows = getattr(above, block, None)
        if isinstance(rows, list) and node in rows:
            yield from rows[rows.index(node) + 1 :]
