"""Which names carry an autograd graph at a place, and which of them flow into a backward()."""

from __future__ import annotations

import ast
import re

from holter.source.bindings import called_on, dotted
from holter.source.module import Loop, Module, once
from holter.source.values import names_in

# Methods of a tensor that give a tensor with its graph.
_KEEP = frozenset(
    (
        *("sum", "mean", "max", "min", "abs", "sqrt", "pow", "exp", "log", "softmax", "sigmoid", "clone", "contiguous"),
        *("cpu", "cuda", "to", "float", "double", "half"),
        *("view", "reshape", "squeeze", "unsqueeze", "flatten", "transpose", "permute"),
    )
)

_FUNCTIONAL = re.compile(r"^torch\.nn\.functional\.(?:\w*loss\w*|\w*cross_entropy\w*|\w*_div|nll\w*)$")
_CUT = re.compile(r"\.item\(|\.detach\(|no_grad|inference_mode|\.numpy\(|float\(")


def carrier(module: Module, node: ast.expr, carrying: set[str]) -> str:
    """Give the name whose graph an expression carries along; nothing where it is cut or there is none."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = dotted(node)
        return name if name in carrying else ""
    if isinstance(node, ast.BinOp):
        return carrier(module, node.left, carrying) or carrier(module, node.right, carrying)
    if isinstance(node, ast.UnaryOp):
        return carrier(module, node.operand, carrying)
    owner = called_on(node, *_KEEP)
    return carrier(module, owner, carrying) if owner is not None else ""


def fresh_graph(module: Module, node: ast.expr) -> str:
    """Give the call that makes a graph right here: a loss of what a model puts out; nothing for anything else."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if not isinstance(node, ast.Call):
        return ""
    full = module.qualified(node.func)
    loss = module.kinds.of(node.func) == "criterion" or bool(_FUNCTIONAL.search(full))
    function = module.callee(node)
    if function is not None:
        loss = not _CUT.search(module.said(function))
    inner = [one for given in node.args for one in ast.walk(given) if isinstance(one, ast.Call)]
    models = [one for one in inner if module.kinds.of(one.func) == "torch-model"]
    # What is cut away may be another argument: only a model's own output counts.
    whole = [one for one in models if not _cut_above(module, one, node)]
    return ast.unparse(node.func) if loss and whole else ""


def graphs_made(module: Module, loop: Loop) -> set[str]:
    """Give the names that a turn of a loop sets to a model's output, or to a loss or a figure of one."""
    made: set[str] = set()
    for node in sorted(
        (node for node in module.within(loop) if isinstance(node, ast.Assign)), key=lambda node: node.lineno
    ):
        if carries_graph(module, node.value, made):
            made.add(dotted(node.targets[0]))
    return made - {""}


def carries_graph(module: Module, node: ast.expr, made: set[str]) -> bool:
    """Whether an expression is a model's output, a loss of one, or made of a name that is."""
    if carrier(module, node, made) or fresh_graph(module, node):
        return True
    if not isinstance(node, ast.Call):
        return False
    if module.kinds.of(node.func) == "torch-model":
        return True
    loss = module.kinds.of(node.func) == "criterion" or bool(_FUNCTIONAL.search(module.qualified(node.func)))
    return loss and any(carrier(module, given, made) for given in node.args)


def _cut_above(module: Module, inner: ast.AST, outer: ast.AST) -> bool:
    for above in module.ancestors(inner):
        if above is outer:
            return False
        if isinstance(above, ast.Attribute) and above.attr in ("detach", "item", "data"):
            return True
    return False


@once
def losses_of(module: Module, loop: Loop) -> dict[str, ast.Call]:
    """Give the names whose backward() is called at each turn of a loop, and the call."""
    found: dict[str, ast.Call] = {}
    for call in module.training.backwards_of(loop):
        lost = module.training.lost(call)
        while isinstance(lost, ast.BinOp):
            lost = lost.left
        name = dotted(lost) if lost is not None else ""
        if name:
            found.setdefault(name, call)
    return found


@once
def flows_to_backward(module: Module, scope: ast.AST) -> set[str]:
    """Give the names of a function that end up in a loss, by following its assignments back."""
    wanted: set[str] = set()
    for call in module.training.backwards_in.get(scope, ()):
        lost = module.training.lost(call)
        if lost is not None and not isinstance(lost, ast.Name):
            wanted |= names_in(lost)
        elif isinstance(lost, ast.Name):
            wanted.add(lost.id)
    pairs: list[tuple[set[str], set[str]]] = []
    for node in module.within(scope):
        if isinstance(node, ast.Assign):
            into = {one for target in node.targets for one in names_in(target)}
            pairs.append((into, names_in(node.value)))
        elif isinstance(node, ast.AugAssign):
            pairs.append((names_in(node.target), names_in(node.value)))
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            pairs.append((names_in(node.target), names_in(node.iter)))
    direct = set(wanted)
    for _ in range(6):
        grown = {name for into, of in pairs if into & wanted for name in of}
        if grown <= wanted:
            break
        wanted |= grown
    return wanted | direct
