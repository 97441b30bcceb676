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

CAUSE = "recompile.shape"

_PAD = Cure(
    "pad the batches to a few fixed lengths",
    "+    dataset = dataset.bucket_by_sequence_length(length_of, boundaries, sizes, pad_to_bucket_boundary=True)",
    "equivalent",
)


def examine(record: RecordLike, _ending: Ending) -> Finding | None:
    """Name the tensor whose shape changes, and the function that is made for each."""
    found = retracing_of(record)
    if found is None or found.kind != "shape":
        return None
    if found.traced.jit:
        cures = _xla_cures(found)
    else:
        cures = _torch_cures(found) if found.traced.what.startswith("torch") else _tf_cures(found)
    return Finding(CAUSE, found.grade, found.claim, found.evidence, culprit_of(found), cures)


def _tf_cures(found: Retracing) -> tuple[Cure, ...]:
    if found.traced.what == "keras":
        drop = Cure(
            "leave out the smaller last batch", "+    dataset = dataset.batch(n, drop_remainder=True)", "changed"
        )
        return _PAD, drop
    example = found.change.examples[0] if found.change.examples else ""
    open_shape = _opened(example)
    return (
        Cure(
            "let one trace serve all shapes",
            f"-    @tf.function\n+    @tf.function(reduce_retracing=True)\n"
            f"     # or: input_signature=[tf.TensorSpec({open_shape}), ...]",
        ),
        _PAD,
    )


def _xla_cures(found: Retracing) -> tuple[Cure, ...]:
    code, pad = culprit_of(found).code, _PAD
    if not found.traced.draws:
        rounded = "+    length = -(-x.shape[1] // 64) * 64    # few lengths in all"
        padded = "+    x = np.pad(x, [(0, 0), (0, length - x.shape[1]), (0, 0)])    # with a mask"
        pad = Cure(_PAD.title, f"{rounded}\n{padded}", _PAD.keeps)
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
    return f"+    model.compile(..., {without})" if what == "keras" else f"+    @tf.function({without})"


def _opened(example: str) -> str:
    """Give an example's shape with its sizes left open, as a signature is written."""
    inside, _, kind = example.strip("(").partition(")")
    sizes = [part for part in inside.split(",") if part.strip()]
    kind = kind.strip() or "float32"
    shape = ", ".join("None" for _ in sizes) + ("," if len(sizes) == 1 else "")
    return f"({shape}), tf.{kind}" if sizes else f"None, tf.{kind}"


def _dynamic(code: str, name: str) -> str:
    """Give the line that asks for the compilation as it is and as it should be, where it can be read."""
    if "dynamic=False" in code:
        return f"- {code}\n+ {code.replace('dynamic=False', 'dynamic=True')}"
    if "torch.compile(" in code and code.endswith(")") and "dynamic" not in code:
        return f"- {code}\n+ {code[:-1]}, dynamic=True)"
    return f"-    torch.compile({name})\n+    torch.compile({name}, dynamic=True)"


def _torch_cures(found: Retracing) -> tuple[Cure, ...]:
    name, culprit = found.change.argument or "x", culprit_of(found)
    return (
        Cure("compile once for all sizes", _dynamic(culprit.code, found.traced.name)),
        Cure("say which dimension changes", f"+    torch._dynamo.mark_dynamic({name}, 0)    # before the call"),
        Cure("pad the batches to a few fixed lengths", "", "equivalent"),
    )  # fmt: skip
