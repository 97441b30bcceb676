"""A number left the range of half precision.

What it sees: the first loss, gradient or weight that is non-finite in a run that computes in float16, where the same
operation in float32 is finite, or where no growth of the losses explains it.
Why it matters: float16 ends at 65,504, and below 0.00006 it loses digits; what is harmless in float32 becomes infinite.
May be confused with: a rate that is too high, where losses grow long before; a loss scaler, which skips a few steps
on purpose.
How sure: established when the operation was finite in float32; else supported.
Cure: bfloat16, autocast with a loss scaler instead of half weights, or that operation in float32.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.nonfinite.lines import half_line, operation_line
from holter.diagnosis.nonfinite.nonfinite import nonfinite_of
from holter.diagnosis.nonfinite.words import at_operation, evidence_of, figure, first_bad
from holter.finding import Cure, Ending, Finding

CAUSE = "nan.precision"


def examine(record: RecordLike, _ending: Ending) -> Finding | None:
    """Say what was computed in float16 and where it overflowed, and name the line that asks for it."""
    seen = nonfinite_of(record)
    if seen is None or seen.detail != "precision":
        return None
    event = seen.event
    claim = f"{first_bad(seen)}, computed in float16, which ends at 65,504"
    scale = event.scale
    if scale is not None and scale < 1e-3:
        fell = f"the loss scale fell to {figure(scale)}"
        claim = f"gradients were non-finite step after step: {fell}, and nothing is trained"
    if event.op:
        claim += f"; {at_operation(seen)}"
    elif event.params is not None and event.params.dtype == "float16":
        claim += "; the weights themselves are float16, so that small updates and an optimizer's epsilon vanish"
    keras = event.framework in ("keras", "tensorflow")
    bf16 = "torch.autocast(device, torch.bfloat16)"
    if keras:
        bf16 = 'keras.mixed_precision.set_global_policy("mixed_bfloat16")'
    scaled = "optimizer = keras.optimizers.LossScaleOptimizer(optimizer)" if keras else "torch.amp.GradScaler"
    cures = (
        Cure("bfloat16, which has the range of float32", bf16, "changed"),
        Cure("float32 weights with autocast and a loss scaler, instead of half weights", scaled, "changed"),
    )
    line = half_line(record) or operation_line(seen)
    return Finding(CAUSE, seen.grade, claim, evidence_of(seen), line, cures)
