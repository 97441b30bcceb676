"""A TensorFlow training step runs operation by operation.

What it does: finds a loop with `GradientTape` and `apply_gradients` that no `tf.function` is around, and
`run_eagerly=True`.
Why it halts or slows a run: each operation of the step is started by Python on its own: with small layers the device is
idle most of the time, and a step takes several times as long as the same step in a graph.
Example:
    for x, y in dataset:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x))
        optimizer.apply_gradients(...)
Instead:
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x))
        optimizer.apply_gradients(...)
When the fix is safe: never by itself: Python code in a graph runs once, when it is traced.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import dotted
from holter.source.module import Function, Module
from holter.source.values import argument

CODE = "HLT505"
CAUSE = "overhead.eager-loop"
NEEDS = ("GradientTape", "run_eagerly")
CURES = (
    Cure(
        "compile the step into a graph",
        "+ @tf.function\n  def train_step(x, y):\n      with tf.GradientTape() as tape: ...",
        "equivalent",
    ),
)
_DEFAULT = Cure(
    "let Keras compile the step: leave `run_eagerly` out of the compile()",
    "- model.compile(..., run_eagerly=True)\n+ model.compile(...)",
    "equivalent",
)

_EAGER = re.compile(r"run_functions_eagerly|run_eagerly|disable_eager|autograph|strategy\.run|\.run\(\s*train")


def examine(module: Module) -> Iterator[Hit]:
    """Look at tapes whose step runs in a loop, by itself or through functions of this file."""
    yield from _asked_for(module)
    if not module.imports.uses("tensorflow") or _EAGER.search(module.text):
        return
    for block in module.withs:
        tape = next((item.context_expr for item in block.items if _is_tape(module, item.context_expr)), None)
        if tape is None:
            continue
        scope = module.scope_of(block)
        applies = [
            call for call in module.training.steps if module.scope_of(call) is scope and call.lineno > block.lineno
        ]
        if not applies or _compiled(module, scope, 3) or not _repeated(module, block, applies[0]):
            continue
        yield Hit(block, "this step runs operation by operation: no tf.function is around it", "note")


def _asked_for(module: Module) -> Iterator[Hit]:
    for call, owner in module.calls_of("compile"):
        eager = argument(call, "run_eagerly")
        asked = isinstance(eager, ast.Constant) and eager.value is True
        if asked and module.kinds.of(owner) == "keras-model" and any(module.calls_of("fit")):
            yield Hit(call, "run_eagerly=True makes every step run operation by operation", "note", _DEFAULT)


def _is_tape(module: Module, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and module.qualified(node.func) == "tensorflow.GradientTape"


def _repeated(module: Module, block: ast.AST, step: ast.Call) -> bool:
    loop = module.loop_of(block)
    if loop is not None:
        return module.loop_of(step) is loop
    return any(step in marks for marks in module.training.step_loops.values())


def _compiled(module: Module, scope: ast.AST, depth: int) -> bool:
    """Whether a function is compiled, called by one that is, or handed to something that may compile it."""
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    function: Function = scope
    if function.decorator_list:
        return True
    owner = module.class_of(function)
    if (
        owner is not None
        and owner.bases
        and not any(dotted(base) in ("object", "ABC", "abc.ABC") for base in owner.bases)
    ):
        return True  # what it inherits may call it from a graph
    if owner is not None and (module.kinds.of_class(owner) == "keras-model" or function.name == "train_step"):
        return True
    for call in module.calls:
        if any(
            dotted(one).rpartition(".")[2] == function.name
            for one in (*call.args, *(word.value for word in call.keywords))
        ):
            return True
    callers = module.callers(function)
    if depth > 0 and callers:
        return all(_compiled(module, module.scope_of(call), depth - 1) for call in callers)
    return False
