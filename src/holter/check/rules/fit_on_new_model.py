"""A loop trains a new Keras model at each pass and releases none.

What it does: finds `fit` or `train_on_batch` in a loop on a model that the same loop builds, with no `clear_session`.
Why it halts or slows a run: Keras keeps global state of every model until `clear_session`, even of those that Python
has let go, and TensorFlow what it compiled for `fit` after that, too: a search or a cross-validation grows with each
pass and is killed for lack of memory at some fold.
Example:
    for train, test in folds.split(x):
        model = build_model()
        model.fit(x[train], y[train])
Instead:
    model = build_model()
    start = model.get_weights()
    for train, test in folds.split(x):
        model.set_weights(start)
        model.fit(x[train], y[train])
When the fix is safe: never by itself: what the optimizer has gathered goes on from pass to pass.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import dotted
from holter.source.module import Module
from holter.source.values import short_loop

CODE = "HLT102"
CAUSE = "leak.model-rebuilt"
NEEDS = (".fit(", ".fit_generator(", "train_on_batch")
CURES = (
    Cure("build and compile it once, before the loop, and set its weights back at each pass", "", "changed"),
    Cure("train each in a process of its own: its memory is given back when it ends", "", "equivalent"),
)

_CLAIM = "each turn of this loop builds a new {} and trains it, and Keras keeps the state of every old one"
_TRAINS = ("fit", "fit_generator", "train_on_batch")


def examine(module: Module) -> Iterator[Hit]:
    """Look for `fit` on a model that is younger than the loop around it."""
    for call, owner in module.calls_of(*_TRAINS):
        name = dotted(owner)
        if module.kinds.of(owner) != "keras-model":
            continue
        for loop in module.loops_of(call):
            if isinstance(owner, ast.Call):
                if short_loop(module, loop) or _released(module, loop):
                    continue
                yield Hit(module.statement_of(call), _CLAIM.format("model"))
                break
            built = [one for one in module.bound(owner, name) if one.how == "set" and module.inside(one.node, loop)]
            fresh = [one for one in built if isinstance(one.value, ast.Call) and module.kinds.of(one.value)]
            if not fresh or short_loop(module, loop) or _released(module, loop):
                continue
            line = fresh[-1].node
            assert isinstance(line, ast.stmt)
            yield Hit(line, _CLAIM.format(f"`{name}`"))
            break


def _released(module: Module, loop: ast.AST) -> bool:
    for call in module.calls_in(loop):
        if dotted(call.func).endswith("clear_session"):
            return True
        function = module.callee(call)
        if function is not None and any(
            dotted(one.func).endswith("clear_session") for one in module.calls_in(function)
        ):
            return True
    return False
