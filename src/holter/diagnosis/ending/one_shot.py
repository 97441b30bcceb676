"""Input that ends before the loop that reads it was meant to: a look at the script alone.

A generator is empty after the first pass, and a `for` over it then does nothing, without a word.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from holter.source.lines import (
    TELLING,
    called_name,
    calls_of,
    function_around,
    handler_around,
    silent_handler_at,
    tree_of,
)

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_ONE_SHOT_CALLS = frozenset(("iter", "zip", "map", "filter", "enumerate", "reader", "DictReader", "islice", "chain"))
_HAND_ON = frozenset(("zip", "enumerate", "tqdm"))
_STEPS = frozenset(("backward", "step", "train_on_batch", "apply_gradients", "minimize"))
_ENDLESS = frozenset(("cycle", "count", "repeat"))


def read_once(lines: Sequence[str]) -> int | None:
    """Give the line that reads such input in an epoch of training after which there is none left; None without one."""
    tree = tree_of(lines)
    if tree is None:
        return None
    found = _shared_iterator(tree)
    makers = _generators(tree)
    for outer in ast.walk(tree):
        if not isinstance(outer, ast.For):
            continue
        for inner in (node for node in ast.walk(outer) if isinstance(node, ast.For) and node is not outer):
            names = _read_by(inner.iter)
            if not names or not _trains(inner) or _leaves_early(inner):
                continue
            within = {id(node) for node in ast.walk(outer)}
            for name in names:
                bound = [node for node in ast.walk(tree) if _binds(node, name)]
                if bound and all(id(node) not in within and _one_shot(node, makers) for node in bound):
                    return inner.lineno
    return found


def as_long_as_its_input(lines: Sequence[str]) -> int | None:
    """Give the line of the one training loop that ends with its input: `zip(range(steps), batches)`, never left early.

    None where there are several loops, or another way out, or where the number is no plan but a bound: what a schedule
    uses as well is meant to be reached, and what is only printed is not.
    """
    tree = tree_of(lines)
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For) and _trains(node)] if tree is not None else []
    if len(loops) != 1 or _leaves_early(loops[0]) or any(isinstance(node, ast.Return) for node in ast.walk(loops[0])):
        return None
    iterated: ast.expr = loops[0].iter
    while isinstance(iterated, ast.Call) and called_name(iterated) in ("enumerate", "tqdm") and iterated.args:
        iterated = iterated.args[0]
    if not isinstance(iterated, ast.Call) or called_name(iterated) != "zip":
        return None
    counted = [one for one in iterated.args if isinstance(one, ast.Call) and called_name(one) == "range" and one.args]
    if len(counted) != 1 or len(iterated.args) < 2 or isinstance(counted[0].args[-1], ast.Constant):
        return None
    planned = ast.dump(counted[0].args[-1])
    used = sum(isinstance(node, ast.expr) and ast.dump(node) == planned for node in _but_messages(tree or loops[0]))
    return loops[0].lineno if used > 1 else None


def _but_messages(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes, without what is only printed or logged."""
    if not (isinstance(node, ast.Call) and called_name(node) in TELLING):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _but_messages(child)


def swallowing_handler(lines: Sequence[str]) -> int | None:
    """Give the `except` that catches everything, without a word, around a training loop with no way out of its own, or
    as its only way out.

    Such a loop that ends early was left by an error, and here is where it went.
    """
    tree = tree_of(lines)
    counted = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While))] if tree is not None else []
    loops = [node for node in counted if _trains(node) and not _is_endless(node)]
    if tree is None or not loops:
        return None
    outer = min(loops, key=lambda loop: loop.lineno)
    ways_out = [node.lineno for node in ast.walk(outer) if isinstance(node, (ast.Break, ast.Return, ast.Raise))]
    if ways_out:
        within = {silent_handler_at(lines, at) for at in ways_out}
        return within.pop() if len(within) == 1 else None
    called = [at for at, _ in calls_of(lines, (function_around(lines, outer.lineno),))]
    caught = [handler_around(lines, at, silent=True) for at in (outer.lineno, *called)]
    return next((line for line in caught if line is not None), None)


def _is_endless(loop: ast.For | ast.While) -> bool:
    return isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant)


def _read_by(iterated: ast.expr) -> list[str]:
    """Names that a loop reads from, also through what hands on one item for each: the first to end is its end."""
    if isinstance(iterated, ast.Name):
        return [iterated.id]
    if isinstance(iterated, ast.Call) and called_name(iterated) in _HAND_ON:
        return [name for argument in iterated.args for name in _read_by(argument)]
    return []


def _generators(tree: ast.AST) -> set[str]:
    """Functions of the script that yield, and come to an end."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            inside = list(ast.walk(node))
            endless = any(
                isinstance(x, ast.While) and isinstance(x.test, ast.Constant) and x.test.value for x in inside
            )
            called = {called_name(x) for x in inside if isinstance(x, ast.Call)}
            if any(isinstance(x, (ast.Yield, ast.YieldFrom)) for x in inside) and not endless and not called & _ENDLESS:
                found.add(node.name)
    return found


def _one_shot(node: ast.AST, makers: set[str]) -> bool:
    value = node.value if isinstance(node, ast.Assign) else None
    if isinstance(value, ast.GeneratorExp):
        return True
    if not isinstance(value, ast.Call):
        return False
    return called_name(value) in makers or called_name(value) in _ONE_SHOT_CALLS


def _binds(node: ast.AST, name: str) -> bool:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.For, ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    names = [bound.id for target in targets for bound in ast.walk(target) if isinstance(bound, ast.Name)]
    # Handed in from elsewhere, it may be anything.
    return name in names or (isinstance(node, ast.arg) and node.arg == name)


def _trains(loop: ast.For | ast.While) -> bool:
    calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return any(isinstance(call.func, ast.Attribute) and call.func.attr in _STEPS for call in calls)


def _leaves_early(loop: ast.For) -> bool:
    """A loop that is left before the end of its input may go on where it stopped, on purpose."""
    inner = {id(x) for node in ast.walk(loop) if isinstance(node, _LOOPS) and node is not loop for x in ast.walk(node)}
    return any(isinstance(node, ast.Break) and id(node) not in inner for node in ast.walk(loop))


def _shared_iterator(tree: ast.AST) -> int | None:
    """A dataset whose `__iter__` hands out the generator that its `__init__` made: the same one in every epoch."""
    makers = _generators(tree)
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        made = {
            target.attr
            for node in ast.walk(cls)
            if isinstance(node, ast.Assign) and _one_shot(node, makers)
            for target in node.targets
            if isinstance(target, ast.Attribute)
        }
        for method in cls.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__iter__":
                for given in (node for node in ast.walk(method) if isinstance(node, ast.Return)):
                    if isinstance(given.value, ast.Attribute) and given.value.attr in made:
                        return given.lineno
    return None
