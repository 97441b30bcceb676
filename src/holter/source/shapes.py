"""Sizes of tensors that a script says outright."""

from __future__ import annotations

import ast
import re

from holter.source.bindings import called_on, dotted
from holter.source.module import FUNCTIONS, Module
from holter.source.values import argument, is_loader, number

_MAKES = re.compile(
    r"^(?:torch|tensorflow|numpy|jax\.numpy)\.(?:random\.)?(?:rand|randn|zeros|ones|empty|full|normal|uniform|randint|"
    r"random_sample|standard_normal)$"
)
_WRAPS = re.compile(
    r"^(?:torch\.(?:tensor|from_numpy|as_tensor)|tensorflow\.(?:constant|convert_to_tensor|cast|Variable)|"
    r"numpy\.(?:array|asarray)|jax\.numpy\.(?:array|asarray))$"
)
_SAME = frozenset("astype to cuda cpu float double half detach clone contiguous requires_grad_".split())  # noqa: SIM905


def shape_of(module: Module, node: ast.expr, depth: int = 6) -> list[ast.expr] | None:
    """Give the sizes that a tensor was made with, as expressions."""
    if depth == 0:
        return None
    if isinstance(node, ast.Call):
        full = module.qualified(node.func)
        if _WRAPS.search(full) and node.args:
            return shape_of(module, node.args[0], depth - 1)
        if _MAKES.search(full):
            given = argument(node, "shape") or argument(node, "size")
            if given is None and full.endswith("randint"):
                return None
            if given is None and node.args:
                given = node.args[0]
                if not isinstance(given, (ast.Tuple, ast.List)):
                    return list(node.args)
            return list(given.elts) if isinstance(given, (ast.Tuple, ast.List)) else None
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SAME:
            return shape_of(module, node.func.value, depth - 1)
        return None
    if isinstance(node, ast.Name):
        bound = module.bindings.last(node, node.id)
        if bound is None:
            return None
        if bound.how == "set" and bound.value is not None:
            return shape_of(module, bound.value, depth - 1)
        if bound.how == "argument":
            return _given(module, node, bound.node, depth)
    return None


def _given(module: Module, node: ast.Name, arg: ast.AST, depth: int) -> list[ast.expr] | None:
    """Give the shape of what the one caller of a function in this file passes for an argument."""
    function = module.parents.get(module.parents.get(arg, arg))
    if not isinstance(function, FUNCTIONS):
        return None
    position = next((at for at, one in enumerate(function.args.args) if one is arg), None)
    callers = module.callers(function)
    if position is None or len(callers) != 1:
        return None
    given = argument(callers[0], node.id, position)
    return shape_of(module, given, depth - 1) if given is not None else None


def first_size(module: Module, node: ast.expr) -> float | None:
    """Give the number of rows of a matrix whose sizes the script says; None for anything but two dimensions."""
    shape = shape_of(module, node)
    if shape is None or len(shape) != 2 or any(isinstance(one, ast.Starred) for one in shape):
        return None
    return number(module, shape[0])


def collected(module: Module, node: ast.expr) -> bool:
    """Whether a name holds a list that a loop over the data has filled, joined to one tensor."""
    value = module.value(node, dotted(node)) if dotted(node) else None
    for _ in range(4):
        if isinstance(value, ast.Call) and module.qualified(value.func) in (
            "torch.cat", "torch.vstack", "torch.concat", "tensorflow.concat", "numpy.concatenate", "numpy.vstack",
        ):  # fmt: skip
            break
        if isinstance(value, ast.Call):  # normalize(torch.cat(...), dim=1), torch.cat(...).cuda()
            value = value.args[0] if value.args and module.qualified(value.func) else getattr(value.func, "value", None)
        elif isinstance(value, ast.Name):
            value = module.value(value, value.id)
        else:
            return False
    else:
        return False
    dim = argument(value, "dim", 1)
    if value.args and isinstance(value.args[0], (ast.ListComp, ast.GeneratorExp)):
        over = value.args[0].generators[0].iter
        parts = called_on(over, "split", "chunk") is not None
        return parts or is_loader(module, over)
    if not value.args or not isinstance(value.args[0], ast.Name) or (dim is not None and number(module, dim) != 0):
        return False
    name = value.args[0].id
    for call, owner in module.calls_of("append"):
        loop = module.loop_of(call)
        if dotted(owner) == name and module.scope_of(call) is module.scope_of(node) and isinstance(loop, ast.For):
            # A sample or a subset of the data has its size by someone's choice.
            chosen = re.search(r"sub|sampl|few|\bislice", ast.unparse(loop.iter))
            return is_loader(module, loop.iter) and chosen is None
    return False
