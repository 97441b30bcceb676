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

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.retracing import culprit_of, retracing_of
from holter.finding import Cure, Ending, Finding

CAUSE = "recompile.scalar"


def examine(record: RecordLike, _ending: Ending) -> Finding | None:
    """Name the Python value that changes, and the line that passes it."""
    found = retracing_of(record)
    if found is None or found.kind != "scalar":
        return None
    name, examples = found.change.argument, found.change.examples
    if any(value.startswith(("'", '"')) for value in examples):
        cures: tuple[Cure, ...] = (Cure(f"keep the text `{name}` out of the function: do what needs it outside"),)
    elif found.traced.what.startswith("torch"):
        cures = _torch_cures(name)
    else:
        whole = all(value.lstrip("-").isdigit() for value in examples)
        cures = _tf_cures(name, found.traced.name, "" if whole else ", tf.float32")
    return Finding(CAUSE, found.grade, found.claim, found.evidence, culprit_of(found), cures)


def _tf_cures(name: str, function: str, kind: str) -> tuple[Cure, ...]:
    return (
        Cure(
            f"pass `{name}` as a tensor",
            f"-    {function}(..., {name})\n+    {function}(..., tf.constant({name}{kind}))",
        ),
        Cure(
            f"keep `{name}` in a variable that the function reads",
            f"+    {name}_now = tf.Variable(0.0, trainable=False)    # before the loop\n"
            f"+    {name}_now.assign({name})                          # in the loop, before the call",
        ),
    )


def _torch_cures(name: str) -> tuple[Cure, ...]:
    last = name.rpartition(".")[2]
    return (
        Cure(f"make `{name}` a tensor", f"-    {last} = 0\n+    {last} = torch.tensor(0)"),
        Cure(
            f"keep `{name}` out of the compiled function: do what needs it (logging, counting) outside, or compile "
            "only the part that computes",
        ),
    )
