"""A batch-size finder runs on several processes at once.

What it does: finds Lightning's BatchSizeFinder or `scale_batch_size` with a `ddp` strategy or several devices, and
Accelerate's `find_executable_batch_size` in a script that sets up distributed training itself.
Why it halts or slows a run: the finder provokes an out-of-memory error and tries again. On several processes one may
run out while the others do not: it starts over, and they wait for it in a collective for ever. Lightning refuses it or
ends with different batch sizes.
Example:
    trainer = Trainer(strategy="ddp", devices=4, callbacks=[BatchSizeFinder()])
Instead:
    trainer = Trainer(devices=1, callbacks=[BatchSizeFinder()])     # find it once, then train with it
When the fix is safe: never by itself: the size that is found has to be written down.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import called_on
from holter.source.module import Module
from holter.source.values import argument, number, text

CODE = "HLT602"
CAUSE = "hang.collective"
OWN_CURE = True
NEEDS = ("BatchSizeFinder", "scale_batch_size", "find_executable_batch_size")
CURES = (Cure("find the batch size on one device, before the run, and train with it", "", "changed"),)

_CLAIM = "the batch-size finder runs on several processes: one that runs out of memory leaves the others waiting"


def examine(module: Module) -> Iterator[Hit]:
    """Look at the finder and at the strategy in one file."""
    several = any(_several(module, call) for call in module.calls)
    for call in module.calls:
        full = module.qualified(call.func)
        finder = full.startswith("lightning.") and full.endswith("BatchSizeFinder")
        scales = called_on(call, "scale_batch_size") is not None
        if several and (finder or scales) and module.imports.uses("lightning", "pytorch_lightning"):
            yield Hit(call, _CLAIM, "error")
    if not re.search(r"DistributedDataParallel\(|init_process_group\(", module.text):
        return
    for function in module.functions:
        if module.decorated_by(function, ("accelerate.find_executable_batch_size",)):
            yield Hit(function.decorator_list[0], _CLAIM, "error")


def _several(module: Module, call: ast.Call) -> bool:
    if not module.qualified(call.func).endswith("Trainer"):
        return False
    strategy = text(argument(call, "strategy")) or ""
    devices = argument(call, "devices")
    many = number(module, devices)
    return strategy.startswith(("ddp", "fsdp", "deepspeed")) or (many is not None and many > 1)
