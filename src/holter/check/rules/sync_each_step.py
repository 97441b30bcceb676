"""The loop waits for the device at each step, to read a number off it.

What it does: finds `.item()`, `.cpu()`, `.numpy()`, `float()` or a print of the loss in the loop that trains, at every
step, on a device that works on its own. Said once for each loop.
Why it halts or slows a run: the device is given work ahead and computes while Python prepares the next step; reading a
value waits until all of it is done. With small steps that halves the speed.
Example:
    for x, y in loader:
        loss = loss_fn(model(x.cuda()), y.cuda())
        loss.backward(); optimizer.step(); optimizer.zero_grad()
        total += loss.item()
Instead:
    for x, y in loader:
        loss = loss_fn(model(x.cuda()), y.cuda())
        loss.backward(); optimizer.step(); optimizer.zero_grad()
        total += loss.detach()          # read once, at the end of the epoch
When the fix is safe: never by itself: what is printed or logged would change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import called_on, dotted
from holter.source.graphs import losses_of
from holter.source.module import Loop, Module
from holter.source.values import names_in

CODE = "HLT501"
CAUSE = None
NEEDS = (".backward(", "apply_gradients")
CURES = (Cure("keep it on the device, and read it once in a while: every 100 steps, or after the epoch"),)

_READS = ("item", "cpu", "numpy", "tolist")
_ON_DEVICE = re.compile(
    r"\.cuda\(|\.to\(\s*(?:self\.|args\.|cfg\.)?(?:device|['\"](?:cuda|mps))|device\s*=\s*['\"](?:cuda|mps)"
)


def examine(module: Module) -> Iterator[Hit]:
    """Look at what each loop that trains reads at every turn."""
    torch = bool(_ON_DEVICE.search(module.text)) and module.imports.uses("torch")
    tensorflow = module.imports.uses("tensorflow")
    for loop in module.training.step_loops:
        values = set(losses_of(module, loop)) if torch else set()
        if tensorflow:
            values |= _tf_losses(module, loop)
        if not values:
            continue
        reads = sorted(_reads(module, loop, values), key=lambda one: (one.lineno, one.col_offset))
        if reads:
            more = f" (and {len(reads) - 1} more like it)" if len(reads) > 1 else ""
            what = ast.unparse(reads[0])
            what = what if len(what) < 50 else what[:46] + "..."
            yield Hit(module.statement_of(reads[0]), f"`{what}` waits for the device at every step{more}", "note")


def _tf_losses(module: Module, loop: Loop) -> set[str]:
    """Give the names of losses in a TensorFlow loop: what a tape differentiates, or a compiled step returns."""
    found: set[str] = set()
    for node in module.within(loop):
        if isinstance(node, ast.Call) and called_on(node, "gradient") is not None and node.args:
            found |= {dotted(node.args[0])}
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
            function = module.callee(node.value)
            if function is not None and any(
                "apply_gradients" in ast.unparse(one.func) for one in module.calls_in(function)
            ):
                found.add(node.targets[0].id)
    return found - {""}


def _reads(module: Module, loop: Loop, values: set[str]) -> list[ast.Call]:
    found: list[ast.Call] = []
    for call in module.calls_in(loop):
        if (
            module.loop_of(call) is not loop
            or module.conditions(call, loop)
            or any(module.inside(call, one) for one in found)
        ):
            continue
        if (
            ((read := called_on(call, *_READS)) is not None and _root(read) in values)
            or (dotted(call.func) == "float" and call.args and dotted(call.args[0]) in values)
            or (dotted(call.func) == "print" and any(names_in(one) & values for one in call.args))
        ):
            found.append(call)
    return found


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return dotted(node).removesuffix(".data")
