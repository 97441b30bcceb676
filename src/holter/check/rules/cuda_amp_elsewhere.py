"""CUDA's mixed precision is asked for, and the script runs on MPS or the CPU.

What it does: finds autocast or GradScaler for CUDA in a script whose only device is `mps` or `cpu`.
Why it halts or slows a run: without CUDA both turn themselves off with a warning. The training goes on in float32:
nothing gets smaller, and a batch that was to fit does not.
Example:
    model.to("mps")
    with torch.cuda.amp.autocast():
        loss = loss_fn(model(x), y)
Instead:
    model.to("mps")
    with torch.autocast("mps", torch.bfloat16):
        loss = loss_fn(model(x), y)
When the fix is safe: never by itself: mixed precision then starts to act, which changes the result.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import called_on
from holter.source.module import Module
from holter.source.values import argument, text

CODE = "HLT302"
CAUSE = "oversize.batch"
NEEDS = ("autocast", "GradScaler")
AND_NEEDS = (".backward", ".manual_backward")
CURES = (Cure("mixed precision (bfloat16)", "torch.autocast(device, torch.bfloat16)", "changed"),)

_DEVICE = re.compile(r"^(mps|cpu|cuda|xpu|hpu)(?::\d+)?$")


def examine(module: Module) -> Iterator[Hit]:
    """Look at the devices that a script names, apart from those of autocast itself."""
    named = _devices(module)
    if not named or not named <= {"mps", "cpu"}:
        return
    where = "MPS" if "mps" in named else "the CPU"
    for call in module.calls:
        full = module.qualified(call.func)
        device = text(argument(call, "device_type", 0) or argument(call, "device", 0))
        cuda = full in ("torch.cuda.amp.autocast", "torch.cuda.amp.GradScaler") or (
            full in ("torch.autocast", "torch.amp.autocast", "torch.amp.GradScaler") and device == "cuda"
        )
        if cuda and argument(call, "enabled") is None:
            yield Hit(call, f"mixed precision for CUDA does nothing on {where}, which is all that this script uses")


def _devices(module: Module) -> set[str]:
    """Give the devices that the script puts something on; all of them when it asks for one by other means."""
    if re.search(r"\.cuda\(|torch\.cuda\.(?!amp)|accelerator|Accelerator|local_rank|argparse|get_device", module.text):
        return {"cuda"}
    found = set()
    for call in module.calls:
        places = called_on(call, "to", "device") is not None
        given = [*(call.args[:1] if places else ()), *(word.value for word in call.keywords if word.arg == "device")]
        for one in given:
            match = _DEVICE.match(text(one if not isinstance(one, ast.Name) else module.value(one, one.id)) or "")
            if match and not re.search(r"autocast|GradScaler", ast.unparse(call.func)):
                found.add(match[1])
            elif isinstance(one, ast.Name):
                value = module.value(one, one.id)
                for part in ast.walk(value) if value is not None else ():
                    match = _DEVICE.match(text(part) or "") if isinstance(part, ast.Constant) else None
                    found |= {match[1]} if match else set()
    return found if module.training.backwards else set()
