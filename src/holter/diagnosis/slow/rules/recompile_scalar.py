"""A traced or compiled function is given a Python number or text that changes, and is made anew for each value.

What it sees: a `tf.function` or a function under `torch.compile` that is traced again and again past the warm-up,
where the argument that differs from the trace before is a plain Python value.
Why it matters: each new value costs a trace of tens of milliseconds to seconds, and its graph stays in memory.
May be confused with: a flag with two or three values (training, validation), which is traced once for each and stops.
How sure: established when most traces name the value that changed and they go on for as long as the run, at a tenth
of its time or at every fifth step, or when the compiler itself gave up; below that nothing is said.
Cure: pass a tensor, or keep the value out of the function.
"""

from __future__ import annotations

import ast

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.retracing import Retracing, culprit_of, retracing_of
from holter.finding import Cure, Ending, Finding
from holter.source.edits import Function, function_named, wrapped_argument
from holter.source.lines import called_name

CAUSE = "recompile.scalar"


def examine(record: RecordLike, _ending: Ending) -> Finding | None:
    """Name the Python value that changes, and the line that passes it."""
    found = retracing_of(record)
    if found is None or found.kind != "scalar":
        return None
    name, examples = found.change.argument, found.change.examples
    if any(value.startswith(("'", '"')) for value in examples):
        cures: tuple[Cure, ...] = (
            Cure(f"keep the text `{name}` out of the function: do what needs it outside", "", "equivalent"),
        )
    else:
        cures = _as_tensor(record, found)
    return Finding(CAUSE, found.grade, found.claim, found.evidence, culprit_of(found), cures)


def _as_tensor(record: RecordLike, found: Retracing) -> tuple[Cure, ...]:
    traced, name = found.traced, found.change.argument
    torch = traced.what.startswith("torch")
    all_ints = all(value.lstrip("-").isdigit() for value in found.change.examples)
    wrap = "torch.tensor({})" if torch else "tf.constant({})" if all_ints else "tf.constant({}, tf.float32)"
    out = Cure(
        f"keep `{name}` out of the function: do what needs it (logging, counting) outside, or compile only the part "
        "that computes",
        "",
        "equivalent",
    )
    if "." in name or traced.call is None:
        return (
            Cure(
                f"keep `{name}` in a {'tensor' if torch else 'tf.Variable'} and change its value in place",
                "",
                "equivalent",
            ),
            out,
        )
    function = function_named(record.source(traced.defined.file), traced.name)
    if function is not None and _decides(function, name):
        return (out,)  # a loop or a branch of Python's, which a tensor would not cure
    how = _call_with_tensor(record, found, function, wrap)
    return (Cure(f"pass `{name}` as a tensor: {wrap.format(name)}", how, "equivalent"), out)


def _call_with_tensor(record: RecordLike, found: Retracing, function: Function | None, wrap: str) -> str:
    """Write the line of the call with the number as a tensor."""
    call, name = found.traced.call, found.change.argument
    given = [one.arg for one in (*function.args.posonlyargs, *function.args.args)] if function is not None else []
    given = given[1:] if given[:1] == ["self"] else given
    at = given.index(name) if name in given else None
    return wrapped_argument(record.source(call.file), call.line, found.traced.name, at, name, wrap) if call else ""


def _decides(function: Function, name: str) -> bool:
    """Tell whether a value says how often a loop turns, which branch is taken, or how large something is."""
    for node in ast.walk(function):
        parts: list[ast.AST] = []
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            parts = [node.test]
        elif isinstance(node, (ast.Subscript, ast.FormattedValue)):
            parts = [node.slice if isinstance(node, ast.Subscript) else node.value]
        elif isinstance(node, ast.Call) and called_name(node) == "range":
            parts = [*node.args]
        if any(isinstance(one, ast.Name) and one.id == name for part in parts for one in ast.walk(part)):
            return True
    return False
