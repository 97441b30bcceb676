"""A traced or compiled function is given tensors of ever new shapes or types, and is made anew for each.

What it sees: a `tf.function`, Keras's own step or a function under `torch.compile` that is traced again and again past
the warm-up, where what differs from the trace before is a tensor's shape or dtype. Under `jit_compile` (Keras's own
choice on a GPU) one trace may serve all shapes, but XLA compiles for each: calls that meet a shape for the first time
and take longer than those that do not. What `fit` draws inside its step is known by its bytes alone.
Why it matters: each new shape costs a trace or a compilation of tens of milliseconds to minutes, and stays in memory.
May be confused with: the smaller last batch of an epoch (one more trace), validation batches, a handful of buckets:
all of these stop after the first epoch.
How sure: established when most traces name the tensor and they go on for as long as the run, at a tenth of its time or
at every fifth step, or when the compiler itself gave up. For XLA: established when they go on and take most of the
time, supported from a tenth of it on, or where every step draws its own data and has a new shape, since a wait for the
data can't be told apart then. Below that nothing is said.
Cure: a signature with open dimensions, padding to a few lengths, `drop_remainder`, `dynamic=True`; for XLA padding, or
`jit_compile=False`.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.retracing import Retracing, culprit_of, retracing_of
from holter.finding import Cure, Ending, Finding
from holter.source.edits import with_decorator_setting, with_setting

CAUSE = "recompile.shape"

_PAD = Cure("pad the batches to a few fixed lengths, with a mask over what was added", "", "equivalent")


def examine(record: RecordLike, _ending: Ending) -> Finding | None:
    """Name the tensor whose shape changes, and the function that is made for each."""
    found = retracing_of(record)
    if found is None or found.kind != "shape":
        return None
    if found.traced.jit:
        cures = _xla_cures(found)
    else:
        cures = _torch_cures(record, found) if found.traced.what.startswith("torch") else _tf_cures(record, found)
    return Finding(CAUSE, found.grade, found.claim, found.evidence, culprit_of(found), cures)


def _tf_cures(record: RecordLike, found: Retracing) -> tuple[Cure, ...]:
    if found.traced.what == "keras":
        return _PAD, Cure("leave out a smaller last batch: drop_remainder=True in batch()", "", "changed")
    example = found.change.examples[0] if found.change.examples else ""
    lines = record.source(found.traced.defined.file)
    how = with_decorator_setting(lines, found.traced.name, "function", "reduce_retracing", "True")
    signature = f"or say which sizes are open: input_signature=[tf.TensorSpec({_opened(example)}), ...]"
    return (
        Cure("let one trace serve all shapes: reduce_retracing=True", how, "equivalent"),
        Cure(signature, "", "equivalent"),
        _PAD,
    )


def _xla_cures(found: Retracing) -> tuple[Cure, ...]:
    code, pad = culprit_of(found).code, _PAD
    if found.traced.draws:
        pad = Cure(f"{_PAD.title}: Dataset.bucket_by_sequence_length", "", _PAD.keeps)
    if found.traced.what == "keras":
        title, without = "let TensorFlow run the model without XLA", "jit_compile=False"
    else:
        title = "let TensorFlow run it without XLA, one trace for all shapes"
        without = "jit_compile=False" if "reduce_retracing" in code else "reduce_retracing=True"
    return pad, Cure(title, _without_xla(code, without, found.traced.what), "equivalent")


def _without_xla(code: str, without: str, what: str) -> str:
    """Give the line that asks for XLA as it is and as it should be, where it can be read."""
    if "jit_compile=True" in code:
        return f"- {code}\n+ {code.replace('jit_compile=True', without)}"
    if what == "keras" and "compile(" in code and code.endswith(")") and "jit_compile" not in code:
        return f"- {code}\n+ {code[:-1]}, {without})"
    return f"model.compile(..., {without})" if what == "keras" else f"@tf.function({without})"


def _opened(example: str) -> str:
    """Give an example's shape with its sizes left open, as a signature is written."""
    inside, _, kind = example.strip("(").partition(")")
    sizes = [part for part in inside.split(",") if part.strip()]
    kind = kind.strip() or "float32"
    shape = ", ".join("None" for _ in sizes) + ("," if len(sizes) == 1 else "")
    return f"({shape}), tf.{kind}" if sizes else f"None, tf.{kind}"


def _torch_cures(record: RecordLike, found: Retracing) -> tuple[Cure, ...]:
    name, culprit = found.change.argument or "x", culprit_of(found)
    lines = record.source(culprit.file)
    how = with_setting(lines, culprit.line, ("compile",), "dynamic", "True") or with_decorator_setting(
        lines, found.traced.name, "compile", "dynamic", "True"
    )
    marked = f"or say which dimension changes, before the call: torch._dynamo.mark_dynamic({name}, 0)"
    return (
        Cure("compile once for all sizes: torch.compile(..., dynamic=True)", how, "equivalent"),
        Cure(marked, "", "equivalent"),
        _PAD,
    )
