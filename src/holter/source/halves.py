"""Models whose weights are cast to float16."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.source.bindings import called_on, dotted
from holter.source.module import Module
from holter.source.values import argument

_MODEL = re.compile(r"(?:^|[._])(?:model|net|network|unet|generator|discriminator|student)$", re.I)
HALF = ("torch.float16", "torch.half")


def half_models(module: Module) -> Iterator[tuple[ast.Call, str]]:
    """Give the calls that cast a model to float16, with its name."""
    for call, owner in module.calls_of("half", "to"):
        name = dotted(owner)
        above = module.parents.get(call)
        if not name and isinstance(above, ast.Assign) and module.kinds.of(owner) == "torch-model":
            name = dotted(above.targets[0])
        if not name or module.conditions(call, module.scope_of(call)):
            continue
        if called_on(call, "to") is not None:
            given = [*call.args, *(word.value for word in call.keywords if word.arg == "dtype")]
            if not any(module.qualified(one) in HALF for one in given):
                continue
        kind = module.kinds.of(owner)
        if kind == "torch-model" or (not kind and _MODEL.search(name)):
            yield call, name


def float16(module: Module, call: ast.Call) -> bool | None:
    """Whether an autocast computes in float16: True, False, or None where it can't be known."""
    full = module.qualified(call.func)
    if full in ("torch.cuda.amp.autocast",):
        device, given = "cuda", argument(call, "dtype", 1)
    elif full in ("torch.autocast", "torch.amp.autocast"):
        first = argument(call, "device_type", 0)
        device = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
        given = argument(call, "dtype", 1)
    else:
        return None
    if argument(call, "enabled") is not None:
        return None
    if given is None:
        return True if device == "cuda" else None
    named = module.qualified(given)
    return True if named in HALF else False if named else None
