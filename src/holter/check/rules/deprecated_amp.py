"""An address of mixed precision that PyTorch is about to remove.

What it does: finds calls of `torch.cuda.amp.autocast`, `torch.cuda.amp.GradScaler` and `torch.cpu.amp.autocast`.
Why it halts or slows a run: since PyTorch 2.4 each call warns, and a later release will not have them: the script then
halts at its first step. They also name a device once and for all.
Example:
    with torch.cuda.amp.autocast():
        loss = loss_fn(model(x), y)
Instead:
    with torch.amp.autocast("cuda"):
        loss = loss_fn(model(x), y)
When the fix is safe: always with PyTorch 2.3 or later: the new call is what the old one calls. It is made where `torch`
itself is imported and no argument is given by position, since the order of those has changed; an import that is no
longer needed stays.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.edits import first_argument, instead
from holter.check.problem import Edit, Hit
from holter.finding import Cure
from holter.source.module import Module
from holter.source.values import argument

CODE = "HLT303"
CAUSE = None
IN_TESTS = True
NEEDS = ("torch.cuda.amp", "torch.cpu.amp", "torch.cuda import amp", "amp.autocast", "amp.GradScaler")
CURES = (Cure("name the device in the call: torch.amp.autocast(device), torch.amp.GradScaler(device)"),)

_NEW = re.compile(r"torch\.amp\.(?:GradScaler|autocast)|from torch\.amp import|torch\.amp, |torch\.GradScaler")
_OLD = re.compile(r"^torch\.(cuda|cpu)\.amp\.(autocast|GradScaler)$")


def examine(module: Module) -> Iterator[Hit]:
    """Look at calls by their old address; a file that knows the new one, too, chooses by version."""
    if _NEW.search(module.text):
        return
    for call in module.calls:
        match = _OLD.match(_address(module, call.func))
        if match is None or _by_version(module, call):
            continue
        device, name = match[1], match[2]
        new = f'torch.amp.{name}("{device}", ...)' if call.args or call.keywords else f'torch.amp.{name}("{device}")'
        cure = Cure(CURES[0].title, f"- {ast.unparse(call)[:80]}\n+ {new}")
        edits = _fix(module, call, device, name)
        yield Hit(call, f"torch.{device}.amp.{name} is deprecated and will be removed", "warning", cure, edits)


def _by_version(module: Module, call: ast.Call) -> bool:
    """Whether the call stands in a branch for older releases."""
    for above in module.ancestors(call):
        if isinstance(above, ast.If) and re.search(
            r"version|hasattr|TORCH_|torch_\w*\d|_available", ast.unparse(above.test)
        ):
            return True
        if isinstance(above, ast.ExceptHandler):
            return True
    return False


def _address(module: Module, func: ast.expr) -> str:
    """Give the address as written: what names one thing for the other rules differs here."""
    name = ast.unparse(func) if isinstance(func, (ast.Name, ast.Attribute)) else ""
    first, dot, rest = name.partition(".")
    if not module.qualified(func):
        return ""
    full = module.imports.names.get(first, first) + dot + rest
    return full.replace(".autocast_mode.", ".").replace(".grad_scaler.", ".")


def _fix(module: Module, call: ast.Call, device: str, name: str) -> tuple[Edit, ...]:
    written = ast.unparse(call.func)
    if name == "autocast" and call.args and argument(call, "enabled") is None and len(call.args) > 1:
        return ()
    # autocast(enabled, dtype) had `enabled` first, the new one has the type: only keywords are carried over.
    if call.args:
        return ()
    if written == f"torch.{device}.amp.{name}":
        return (instead(call.func, f"torch.amp.{name}"), first_argument(call, f'"{device}"'))
    if "." in written or module.imports.names.get("torch") != "torch":
        return ()
    return (instead(call.func, f"torch.amp.{name}"), first_argument(call, f'"{device}"'))
