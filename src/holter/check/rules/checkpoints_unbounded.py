"""Every epoch or step writes a checkpoint of its own, and none is ever removed.

What it does: finds a save in a loop under a name with the loop's counter in it, with nothing in the file that deletes;
Keras's `ModelCheckpoint` with `{epoch}` in its path; `save_top_k=-1` in Lightning; `save_steps` with no
`save_total_limit` in Hugging Face's Trainer.
Why it halts or slows a run: a checkpoint with its optimizer is three times the model: a long run fills the disk, and
dies while it writes the very file it was to go on from.
Example:
    for epoch in range(epochs):
        train()
        torch.save(model.state_dict(), f"model-{epoch}.pt")
Instead:
    for epoch in range(epochs):
        train()
        torch.save(model.state_dict(), f"model-{epoch % 3}.pt")
When the fix is safe: never by itself: only the author knows which checkpoints are wanted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import called_on, dotted
from holter.source.module import Loop, Module
from holter.source.values import argument, names_in, number, short_loop, spread, targets_of, text

CODE = "HLT601"
CAUSE = "disk-full"
NEEDS = ("torch.save", "save_pretrained", "save_weights", ".save(", "ModelCheckpoint", "TrainingArguments")
CURES = (Cure("make room: keep only the last checkpoints, or write them to another file system"),)

_REMOVES = re.compile(
    r"os\.remove|os\.unlink|\.unlink\(|rmtree|save_total_limit|max_to_keep|keep_last|rotate_checkpoint|n_saved|max_checkpoints|keep_checkpoint"
)
_MODEL = re.compile(r"state_dict|\bmodel\b|checkpoint|\bnet\b|weights|params|ckpt", re.I)

_CLAIM = "each {} leaves a checkpoint under a name of its own, and nothing removes the old ones"


def examine(module: Module) -> Iterator[Hit]:
    """Look at saves in loops that train, and at the settings of trainers."""
    yield from _settings(module)
    if _REMOVES.search(module.text):
        return
    for call in module.calls:
        if not _saves(module, call):
            continue
        for loop in module.loops_of(call):
            counters = targets_of(loop) | _counted(module, loop)
            path = _path(module, call)
            if path is None or not _numbered(path, counters):
                continue
            if (
                not _counts(loop)
                or not _trains(module, loop)
                or short_loop(module, loop)
                or _seldom(module, call, loop)
            ):
                continue
            per = "step" if loop in module.training.step_loops and _direct(module, loop) else "epoch"
            yield Hit(module.statement_of(call), _CLAIM.format(per))
            break


def _saves(module: Module, call: ast.Call) -> bool:
    full = module.qualified(call.func)
    if full == "torch.save":
        return bool(call.args) and bool(_MODEL.search(ast.unparse(call.args[0])))
    saved = called_on(call, "save_pretrained", "save_weights", "save")
    return module.kinds.of(saved) in ("torch-model", "keras-model")


def _path(module: Module, call: ast.Call) -> ast.expr | None:
    first = 1 if module.qualified(call.func) == "torch.save" else 0
    given = argument(call, "f", first) or argument(call, "filepath", first)
    if isinstance(given, ast.Name):
        value = module.value(given, given.id)
        return value if value is not None else given
    return given


def _counted(module: Module, loop: Loop) -> set[str]:
    return {dotted(node.target) for node in module.within(loop) if isinstance(node, ast.AugAssign)}


def _numbered(path: ast.expr, counters: set[str]) -> bool:
    """Whether a path has the counter in it, and not only as one of a few numbers."""
    few = [one for one in ast.walk(path) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod)]
    if any(dotted(one.left) in counters for one in few):
        return False
    return bool(names_in(path) & counters)


def _counts(loop: Loop) -> bool:
    """Whether a loop is one over epochs or steps, and not over a few things that are each worth keeping."""
    if isinstance(loop, ast.While):
        return True
    names = " ".join(targets_of(loop)).lower()
    return bool(re.search(r"epoch|step|iter|batch|\bep?\b|\bi\b|\bit\b", names)) or ast.unparse(loop.iter).startswith(
        ("range(", "trange(", "tqdm(range", "count(", "itertools.count")
    )


def _trains(module: Module, loop: Loop) -> bool:
    if loop in module.training.step_loops or any(module.inside(one, loop) for one in module.training.step_loops):
        return True
    return any(re.search(r"train|fit", dotted(call.func)) for call in module.calls_in(loop))


def _direct(module: Module, loop: Loop) -> bool:
    return not any(module.inside(one, loop) for one in module.training.step_loops)


def _seldom(module: Module, call: ast.Call, loop: Loop) -> bool:
    """Whether a condition lets only some turns save: a few, or those that are better than all before."""
    gates = module.conditions(call, loop)
    if loop in module.training.step_loops and _direct(module, loop):
        # Every so many steps is often; every so many epochs is not.
        return not all(any(isinstance(one, ast.Mod) for one in ast.walk(gate.test)) for gate in gates)
    return bool(gates)


def _settings(module: Module) -> Iterator[Hit]:
    for call in module.calls:
        full = module.qualified(call.func)
        if full.startswith("lightning.") and full.endswith("ModelCheckpoint"):
            top = number(module, argument(call, "save_top_k"))
            if top == -1:
                yield Hit(call, "save_top_k=-1 keeps every checkpoint of the run")
        elif full.startswith("keras.") and full.endswith("ModelCheckpoint") and call.args:
            numbered = any("{epoch" in (text(one) or "") for one in ast.walk(call.args[0]) if isinstance(one, ast.expr))
            if numbered and argument(call, "save_best_only") is None:
                yield Hit(
                    call, "each epoch leaves a checkpoint under a name of its own, and nothing removes the old ones"
                )
        elif full in ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments") and not spread(call):
            every = argument(call, "save_steps")
            strategy = text(argument(call, "save_strategy"))
            if every is not None and strategy != "no" and argument(call, "save_total_limit") is None:
                yield Hit(
                    call, "a checkpoint is written every few steps, and with no save_total_limit all of them stay"
                )
