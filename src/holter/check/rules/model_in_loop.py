"""A model or an optimizer is built anew at each step of a training.

What it does: finds, in the loop that takes the steps, a line that builds a model which was there already, or an
optimizer for a model that is older than the loop.
Why it halts or slows a run: Keras keeps the state of every model until `clear_session`, so that memory grows by a model
a step and the run is killed. A new model has untrained weights and a new optimizer has no momentum: each step starts
from nothing.
Example:
    model = build_model()
    for x, y in batches:
        model.train_on_batch(x, y)
        model = build_model()
Instead:
    model = build_model()
    for x, y in batches:
        model.train_on_batch(x, y)
When the fix is safe: never by itself: only the author knows whether each pass was meant to start anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import called_on, dotted
from holter.source.module import Loop, Module
from holter.source.training import MARKS
from holter.source.values import literal_loop, names_in, set_within, targets_of

CODE = "HLT101"
CAUSE = "leak.model-rebuilt"
NEEDS = ("backward", "apply_gradients", "train_on_batch")
AND_NEEDS = MARKS

_KERAS = Cure(
    "build and compile it once, before the loop, and set its weights back at each pass",
    "",
    "changed",
)
_TORCH = Cure(
    "build it once before the loop, and load its first state at each pass",
    "",
    "equivalent",
)
CURES = (_KERAS, _TORCH)


def examine(module: Module) -> Iterator[Hit]:
    """Look at what is built in the innermost loop around the marks of a training."""
    for loop, marks in module.training.step_loops.items():
        if literal_loop(module, loop):
            continue
        for node in module.within(loop):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1 or module.loop_of(node) is not loop:
                continue
            name = dotted(node.targets[0])
            kind = module.kinds.of(node.value)
            if not name or not isinstance(node.value, ast.Call) or module.conditions(node, loop):
                continue
            if kind in ("keras-model", "torch-model") and _rebuilt(module, loop, node, name):
                extra = _uncompiled(module, loop, node, marks)
                claim = f"each turn of this loop builds `{name}` anew: what it learned is lost{extra}"
                if kind == "keras-model":
                    kept = "and Keras keeps the state of every old one"
                    claim = f"each turn of this loop builds `{name}` anew, {kept}{extra}"
                yield Hit(node, claim, "error", _KERAS if kind == "keras-model" else _TORCH)
            elif kind in ("torch-optimizer", "keras-optimizer") and _resets(module, loop, node, name, marks):
                cure = Cure(_TORCH.title if kind == "torch-optimizer" else _KERAS.title, "")
                claim = f"each turn of this loop builds the optimizer `{name}` anew: its state is lost at each step"
                yield Hit(node, claim, "error", cure)


def _rebuilt(module: Module, loop: Loop, node: ast.Assign, name: str) -> bool:
    """Whether the name held a model before the loop: the one that is built replaces one that was trained."""
    before = [one for one in module.bound(node, name) if one.how == "set" and not module.inside(one.node, loop)]
    called = isinstance(node.value, ast.Call) and names_in(node.value) & targets_of(loop)
    # A wrapper around the old one is the old one.
    wraps = name in names_in(node.value)
    return any(module.kinds.of(one.value) for one in before) and not called and not wraps


def _uncompiled(module: Module, loop: Loop, node: ast.Assign, marks: list[ast.Call]) -> str:
    trained = any(called_on(mark, "train_on_batch") for mark in marks)
    compiled = any(called_on(one, "compile") for one in ast.walk(loop))
    function = module.callee(node.value) if isinstance(node.value, ast.Call) else None
    if function is not None:
        compiled = compiled or any(called_on(call, "compile") for call in module.calls_in(function))
    return "; the new one is not compiled, so that the next step raises an error" if trained and not compiled else ""


def _resets(module: Module, loop: Loop, node: ast.Assign, name: str, marks: list[ast.Call]) -> bool:
    """Whether an optimizer that is stepped in this very loop is made of things older than the loop."""
    stepped = [mark for mark in marks if (it := module.training.optimizer_of(mark)) is not None and dotted(it) == name]
    applied = [mark for mark in marks if (it := called_on(mark, "apply_gradients")) is not None and dotted(it) == name]
    direct = [mark for mark in (*stepped, *applied) if module.loop_of(mark) is loop]
    return bool(direct) and not names_in(node.value) & set_within(module, loop)
