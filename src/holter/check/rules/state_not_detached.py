"""A recurrent state goes from one training step into the next with its graph.

What it does: finds `out, hidden = model(x, hidden)` in a loop that calls backward() at each turn, where the state is
never detached.
Why it halts or slows a run: the graph gets longer with every step. PyTorch raises "backward through the graph a second
time" at the second step; with `retain_graph=True` memory and time of a step grow without end instead.
Example:
    for x, y in batches:
        out, hidden = model(x, hidden)
        loss(out, y).backward()
Instead:
    for x, y in batches:
        hidden = hidden.detach()
        out, hidden = model(x, hidden)
        loss(out, y).backward()
When the fix is safe: never by itself: a state may be a tensor, a tuple of them, or None at first.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import dotted
from holter.source.module import Loop, Module

CODE = "HLT105"
CAUSE = "leak.graph-retained"
NEEDS = (".backward(",)
CURES = (Cure("cut it from its graph before keeping it: .detach()", "+ hidden = hidden.detach()"),)

_STATE = re.compile(r"hidden|(?:^|_)states?$|^h\d?$|^[hc]x$|^c\d?$|^h_?[nt]$|^c_?[nt]$|memory|^mems$|^carry$|^hc$")
_NOT = re.compile(r"state_dict|optim|sched|rng|opt_state|params|loss|scaler")


def examine(module: Module) -> Iterator[Hit]:
    """Look for names that a call gets and sets, in the loop that goes backward."""
    direct = {one for call in module.training.backwards if (one := module.loop_of(call)) is not None}
    around = {outer for one in direct for outer in module.loops_of(one)} - direct
    for loop in sorted(direct | around, key=lambda one: one.lineno):
        for node in module.within(loop):
            if (
                not isinstance(node, ast.Assign)
                or not isinstance(node.value, ast.Call)
                or module.loop_of(node) is not loop
            ):
                continue
            name = _carried(node)
            if not name or not _STATE.search(name) or _NOT.search(name) or module.training.without_gradients(node):
                continue
            # Around the loop that trains, only what is known to be a model counts.
            known = loop in direct or module.kinds.of(node.value.func) == "torch-model"
            if known and _called_on_model(module, node.value) and not _cut(module, loop, node, name):
                claim = f"`{name}` goes from step to step with its autograd graph, which gets longer each time"
                yield Hit(node, claim, "error")


def _carried(node: ast.Assign) -> str:
    """Give the name that is both an argument of the call and set by it."""
    assert isinstance(node.value, ast.Call)
    given = {dotted(one) for one in [*node.value.args, *(word.value for word in node.value.keywords)]} - {""}
    for one in list(node.value.args):
        if isinstance(one, ast.Tuple):
            given |= {dotted(part) for part in one.elts} - {""}
    for target in node.targets:
        for part in ast.walk(target):
            if (
                isinstance(part, (ast.Name, ast.Attribute))
                and isinstance(part.ctx, ast.Store)
                and dotted(part) in given
            ):
                return dotted(part)
    return ""


def _called_on_model(module: Module, call: ast.Call) -> bool:
    kind = module.kinds.of(call.func)
    if kind:
        return kind == "torch-model"
    if module.callee(call) is not None or module.qualified(call.func):
        return False
    last = dotted(call.func).rpartition(".")[2].lower()
    return bool(re.search(r"model|net$|rnn|lstm|gru|decoder|encoder|policy|agent|forward", last))


def _cut(module: Module, loop: Loop, node: ast.Assign, name: str) -> bool:
    """Whether anything else in the loop touches the state: sets it anew, or detaches it in place."""
    for other in module.within(loop):
        if isinstance(other, (ast.Name, ast.Attribute)) and dotted(other) == name and not module.inside(other, node):
            if isinstance(other.ctx, ast.Store):
                return True
            above = module.parents.get(other)
            if isinstance(above, ast.Attribute) and above.attr in ("detach_", "detach", "data"):
                return True
            if isinstance(above, ast.comprehension):
                return True
    for call in module.calls_in(loop):
        given = {dotted(one) for one in call.args}
        if name in given and re.search(r"detach|repackage|reset|truncate", dotted(call.func)):
            return True
    return not module.bound(node, name)
