"""A loss or an output is kept from step to step together with its autograd graph.

What it does: finds a tensor that still has its graph being added to a list, a dict or a sum that outlives the step. An
error where no `backward()` runs through it, a warning where one does and frees most of what the graph holds.
Why it halts or slows a run: each kept tensor keeps the graph that made it, and before `backward()` every activation of
its step; memory grows by as much with every step until there is none.
Example:
    loss.backward()
    total += loss
Instead:
    loss.backward()
    total += loss.item()
When the fix is safe: where the loss itself goes through `backward()` and the sum or list is not used for another: the
training stays the same to the bit, and a sum of numbers differs from one of tensors by rounding alone. `.detach()` is
put where something calls methods of a tensor on what was kept, else `.item()`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.edits import after, before
from holter.check.problem import Edit, Hit
from holter.finding import Cure
from holter.source.bindings import dotted
from holter.source.graphs import carrier, carries_graph, flows_to_backward, fresh_graph, graphs_made, losses_of
from holter.source.holders import growing, outlives, used_as_tensor
from holter.source.module import Function, Loop, Module
from holter.source.values import argument, is_loader, names_in

CODE = "HLT103"
CAUSE = "leak.graph-retained"
NEEDS = (".backward(", "manual_backward", "def training_step", "def compute_loss", "loader", "Loader", "batches")
OR_WRITTEN = r"_dl\b"
AND_NEEDS = ("torch", "lightning", "accelerate")

_NUMBER = "keep the number, not the tensor: .item()"
_CUT = "cut it from its graph before keeping it: .detach()"
CURES = (Cure(_NUMBER), Cure(_CUT))
_HANDFUL = 16  # turns of a loop


def examine(module: Module) -> Iterator[Hit]:
    """Look at what grows in the loops that train, and in loops over batches that do not."""
    if not module.imports.uses("torch", "lightning", "pytorch_lightning", "accelerate"):
        return
    for loop in module.training.step_loops:
        losses = losses_of(module, loop)
        # A loop that only adds up the parts of one step keeps a handful.
        steps = any(module.training.is_step(mark) for mark in module.training.step_loops[loop])
        if losses and (steps or (isinstance(loop, ast.For) and is_loader(module, loop.iter))):
            yield from _kept(module, loop, losses)
    for loop in module.loops:
        if loop not in module.training.step_loops:
            yield from _kept_outputs(module, loop)
    for function in module.functions:
        if function.name in ("training_step", "compute_loss"):
            yield from _kept_for_trainer(module, function)


def _kept(module: Module, loop: Loop, losses: dict[str, ast.Call]) -> Iterator[Hit]:
    used = flows_to_backward(module, module.scope_of(loop))
    for statement, holder, value in growing(module, loop):
        made = fresh_graph(module, value)
        if made and holder not in used and outlives(module, loop, statement, holder):
            if not module.training.without_gradients(statement):
                claim = f"`{holder}` keeps what `{made}` gives at each step with its autograd graph and all activations"
                yield Hit(statement, claim, "error", Cure(_NUMBER))
            continue
        name = carrier(module, value, set(losses))
        if (
            not name
            or holder in used
            or holder.partition(".")[0] in losses
            or not outlives(module, loop, statement, holder)
        ):
            continue
        if module.training.without_gradients(statement) or _cut_between(module, loop, name, losses[name], statement):
            continue
        kept = argument(losses[name], "retain_graph")
        retained = isinstance(kept, ast.Constant) and kept.value is True
        claim = f"`{holder}` keeps `{name}` of every step with its autograd graph"
        edits, cut = _fix(module, value, holder, name)
        if retained:
            yield Hit(statement, f"{claim}, and retain_graph=True keeps every activation with it", "error", cut, edits)
        else:
            yield Hit(
                statement, f"{claim}; backward() has freed its activations, its nodes stay", "warning", cut, edits
            )


def _kept_for_trainer(module: Module, function: Function) -> Iterator[Hit]:
    """The loss that a step hands to Lightning's or Hugging Face's trainer, kept on the module or the trainer itself."""
    owner = module.class_of(function)
    if owner is None or not any(dotted(base).endswith(("LightningModule", "Trainer")) for base in owner.bases):
        return
    returned = [
        node.value for node in module.within(function) if isinstance(node, ast.Return) and node.value is not None
    ]
    losses = {node.id for value in returned for node in ast.walk(value) if isinstance(node, ast.Name)}
    for statement, holder, value in growing(module, function):
        name = carrier(module, value, losses)
        if name and holder.startswith("self.") and not module.training.without_gradients(statement):
            claim = f"`{holder}` keeps `{name}` of every step with its autograd graph; backward() frees its activations"
            cure = Cure(_CUT, f"- {name}\n+ {name}.detach()")
            edits = (after(value, ".detach()"),) if isinstance(value, ast.Name) else ()
            yield Hit(statement, f"{claim}, its nodes stay", "warning", cure, edits)


def _kept_outputs(module: Module, loop: Loop) -> Iterator[Hit]:
    """Outputs or losses kept in a loop that trains nothing: each keeps every activation of its turn."""
    if module.in_torch_model(loop) or any(module.inside(call, loop) for call in module.training.backwards):
        return
    if module.training.without_gradients(loop) or _frozen(module) or _few_turns(loop):
        return
    made = graphs_made(module, loop)
    for statement, holder, value in growing(module, loop):
        if not carries_graph(module, value, made) or module.training.without_gradients(statement):
            continue
        name = carrier(module, value, made)
        sets = [
            node for node in module.within(loop) if isinstance(node, ast.Assign) and name in names_in(node.targets[0])
        ]
        if name and (len(sets) > 1 or module.training.without_gradients(sets[0])):
            continue
        if outlives(module, loop, statement, holder) and not _learned_from(module, loop, holder):
            what = name or ast.unparse(value)
            claim = f"`{holder}` keeps `{what}` of every turn with its autograd graph and all its activations"
            yield Hit(statement, claim, "error", Cure(_CUT))


def _few_turns(loop: Loop) -> bool:
    """A loop over a handful of things keeps a handful."""
    given = loop.iter if isinstance(loop, (ast.For, ast.AsyncFor)) else None
    if isinstance(given, (ast.List, ast.Tuple)):
        return True
    if not isinstance(given, ast.Call) or dotted(given.func) != "range" or len(given.args) not in (1, 2):
        return False
    end = given.args[-1]
    return isinstance(end, ast.Constant) and isinstance(end.value, int) and end.value <= _HANDFUL


def _learned_from(module: Module, loop: Loop, holder: str) -> bool:
    """Whether a backward() may go through what was kept, here or in whoever is given it."""
    scope = module.scope_of(loop)
    if holder in flows_to_backward(module, scope):
        return True
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return holder.startswith("self.")
    gives = [node for node in module.within(scope) if isinstance(node, ast.Return) and node.value is not None]
    if not any(holder in names_in(node.value) for node in gives if node.value is not None):
        return holder.startswith("self.")
    callers = module.callers(scope)
    over_data = isinstance(loop, ast.For) and is_loader(module, loop.iter)
    return any(_flows_on(module, call) for call in callers) if callers else not over_data


def _flows_on(module: Module, call: ast.Call) -> bool:
    """Whether what a call gives may end up in a backward(), or is handed on by another function."""
    statement = module.statement_of(call)
    if isinstance(statement, ast.Return):
        return True
    if isinstance(statement, ast.Assign):
        used = flows_to_backward(module, module.scope_of(call))
        return any(name in used for target in statement.targets for name in names_in(target))
    return any(call in ast.walk(lost) for one in module.training.backwards if (lost := module.training.lost(one)))


def _cut_between(module: Module, loop: Loop, name: str, backward: ast.Call, statement: ast.stmt) -> bool:
    """Whether the name is set anew, such as `loss = loss.item()`, between backward() and the place that keeps it."""
    return any(
        module.inside(one.node, loop) and backward.lineno < one.line < statement.lineno
        for one in module.bound(statement, name)
    )


def _frozen(module: Module) -> bool:
    return "requires_grad_(False)" in module.text or "requires_grad = False" in module.text


def _fix(module: Module, value: ast.expr, holder: str, name: str) -> tuple[tuple[Edit, ...], Cure]:
    tensor = used_as_tensor(module, holder, value)
    cut = ".detach()" if tensor else ".item()"
    cure = Cure(_CUT if tensor else _NUMBER, f"- {name}\n+ {name}{cut}")
    if isinstance(value, ast.Name):
        return (after(value, cut),), cure
    if isinstance(value, ast.BinOp) and dotted(value.left) == name and isinstance(value.op, (ast.Mult, ast.Div)):
        return (after(value.left, cut),), cure
    if isinstance(value, ast.BinOp) and cut == ".detach()":
        return (before(value, "("), after(value, ").detach()")), cure
    return (), cure
