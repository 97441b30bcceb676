"""What a loop lets grow: lists, sums and dicts that outlive its turns."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.source.bindings import called_on, dotted
from holter.source.module import Function, Loop, Module, once
from holter.source.values import argument, names_in

_TAKE_NUMBERS = ("print", "sum", "len", "float", "min", "max", "np.mean", "numpy.mean", "np.sum")


def growing(module: Module, loop: Loop | Function) -> Iterator[tuple[ast.stmt, str, ast.expr]]:
    """Give the statements of a loop that add to something: the statement, the name of what grows, and what is added."""
    for node in module.within(loop):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            target = node.target
            holder = dotted(target.value if isinstance(target, ast.Subscript) else target)
            if holder:
                yield node, holder, node.value
        elif isinstance(node, ast.Call) and (owner := called_on(node, "append")) is not None:
            holder = dotted(owner.value if isinstance(owner, ast.Subscript) else owner)
            statement = module.parents.get(node)
            if holder and node.args and isinstance(statement, ast.Expr):
                yield statement, holder, node.args[0]
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
            holder = dotted(node.targets[0])
            if holder and holder == dotted(node.value.left):
                yield node, holder, node.value.right


def outlives(module: Module, loop: Loop, statement: ast.stmt, holder: str) -> bool:
    """Whether what grows is older than the loop, and not set anew or emptied in it."""
    if isinstance(loop.body[-1], (ast.Break, ast.Return)):
        return False  # it has one turn
    bound = module.bound(statement, holder)
    plain = [one for one in bound if one.how in ("set", "part", "loop", "with")]
    if any(module.inside(one.node, loop) and one.node is not statement for one in plain):
        return False
    if not plain and not holder.startswith("self."):
        return False
    if any(isinstance(one.value, ast.Call) and argument(one.value, "maxlen") is not None for one in plain):
        return False
    empties = ("clear", "pop", "popleft", "reset")
    return not any(
        owner is not None and dotted(owner) == holder
        for owner in (called_on(call, *empties) for call in module.calls_in(loop))
    )


def used_as_tensor(module: Module, holder: str, value: ast.expr) -> bool:
    """Whether anything asks the sum or the list for what only a tensor has."""
    return holder.startswith("self.") or holder in _used_as_tensors(module, module.scope_of(value))


@once
def _used_as_tensors(module: Module, scope: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.Attribute) and node.attr not in ("append", "extend"):
            found.add(dotted(node.value))
        elif isinstance(node, ast.Call):
            if module.qualified(node.func).startswith("torch."):
                found |= {name for one in node.args for name in names_in(one)}
            if dotted(node.func) not in _TAKE_NUMBERS:
                found |= {dotted(one) for one in node.args}
        elif isinstance(node, ast.Return) and node.value is not None:
            found |= names_in(node.value)
        elif isinstance(node, (ast.For, ast.ListComp, ast.GeneratorExp)):
            over = [node.iter] if isinstance(node, ast.For) else [one.iter for one in node.generators]
            found |= {name for one in over for name in names_in(one)}
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            found.add(dotted(node.value))
    return found
