"""Recorders that a script switches on and that keep all they see until they are switched off: profilers, histories."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from holter.source.lines import called_name, tree_of

_SCHEDULE = "profile(schedule=torch.profiler.schedule(wait=10, warmup=2, active=5, repeat=1)), then prof.step()"


@dataclass(frozen=True)
class LeftOn:
    """A recorder and how it is bounded."""

    line: int
    what: str
    cure: str
    how: str = ""


def left_on(lines: Sequence[str]) -> LeftOn | None:
    """Give the first recorder without a bound that the script switches on."""
    tree = tree_of(lines)
    text = "\n".join(lines)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.Call):
            continue
        name, given = called_name(node), {keyword.arg for keyword in node.keywords}
        if name == "profile" and "schedule" not in given and ("torch.profiler" in text or "autograd.profiler" in text):
            return LeftOn(node.lineno, "PyTorch's profiler", "profile a few steps only, with a schedule", _SCHEDULE)
        if name == "_record_memory_history" and "max_entries" not in given and not _is_off(node):
            return LeftOn(node.lineno, "PyTorch's memory history", "bound it", "max_entries=100_000")
        if ast.unparse(node.func).endswith(("summary.trace_on", "profiler.experimental.start")):
            return LeftOn(node.lineno, "TensorFlow's profiler", "stop it after a few steps")
        if name == "start" and ast.unparse(node.func) == "tracemalloc.start":
            return LeftOn(node.lineno, "tracemalloc", "stop it after a few steps", "tracemalloc.stop()")
    return None


def _is_off(node: ast.Call) -> bool:
    given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "enabled")]
    return any(isinstance(one, ast.Constant) and one.value in (None, False) for one in given)
