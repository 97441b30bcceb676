"""`clear_session()` is called at each training step.

What it does: finds `clear_session` in the loop that takes the steps, where no model is built.
Why it halts or slows a run: it frees nothing that the step has made: tensors go when Python lets them go. It resets
Keras's global state under a model that is still in use, and collects garbage of the whole process each time, which
takes longer than many steps.
Example:
    for x, y in dataset:
        train_step(x, y)
        keras.backend.clear_session()
Instead:
    for x, y in dataset:
        train_step(x, y)
When the fix is safe: never by itself: deleting the line is safe, unless the loop is to build models later on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import dotted
from holter.source.module import Module

CODE = "HLT208"
CAUSE = None
NEEDS = ("clear_session",)
CURES = (Cure("leave it out: call it only between models that are built anew", "- keras.backend.clear_session()"),)


def examine(module: Module) -> Iterator[Hit]:
    """Look at calls beside the marks of a training in the same loop."""
    for call in module.calls:
        if not dotted(call.func).endswith("clear_session"):
            continue
        loop = module.loop_of(call)
        if loop is None or loop not in module.training.step_loops:
            continue
        builds = any(
            isinstance(node, ast.Call) and module.kinds.of(node) == "keras-model" for node in module.within(loop)
        )
        if not builds:
            claim = (
                "clear_session() at each step frees no tensor: it resets Keras under the model that is being trained"
            )
            yield Hit(module.statement_of(call), claim)
