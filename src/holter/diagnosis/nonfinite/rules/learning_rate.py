"""The training ran away: losses or weights grew until they were non-finite.

What it sees: the first loss or gradient that is non-finite, and the losses before it far above their usual level, or
weights of a size that nothing learns.
Why it matters: all that follows is lost, and the run goes on to its end without a word.
May be confused with: one bad batch, which comes out of a calm history; a function at its edge; half precision.
How sure: supported when the losses grew over several steps or a weight is huge; else a hypothesis.
Cure: a smaller rate, a warm-up, clipped gradients.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.nonfinite.lines import optimizer_line
from holter.diagnosis.nonfinite.nonfinite import magnitude, nonfinite_of
from holter.diagnosis.nonfinite.words import evidence_of, figure, first_bad
from holter.finding import Cure, Ending, Finding
from holter.record.events.agent import Adapter

CAUSE = "nan.learning-rate"


def examine(record: RecordLike, _ending: Ending) -> Finding | None:
    """Say how the loss grew, and name the line that sets the rate."""
    seen = nonfinite_of(record)
    if seen is None or seen.detail != "learning-rate":
        return None
    rate, growth = seen.event.lr, seen.growth
    claim = first_bad(seen)
    if growth is not None and growth.clear:
        claim += f": before it the loss grew from {figure(growth.usual)} to {figure(growth.top)}"
    largest = magnitude(seen.event.params.max) if seen.event.params is not None else None
    if largest is not None and largest >= 1e5:
        claim += f", and the largest weight was {figure(largest)}"
    elif growth is None or not growth.clear:
        claim += ": the batch was finite and no operation was at its edge, so that the update itself is left to blame"
    if rate is not None:
        claim += f"; the learning rate was {figure(rate)}"
    lower = f"lr={figure(rate / 10)} instead of {figure(rate)}" if rate else "a tenth of the present rate"
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0) before optimizer.step()"
    if seen.event.framework in ("keras", "tensorflow") or _keras(record):
        clip = "clipnorm=1.0 in the optimizer"
    cures = (
        Cure("a smaller learning rate", lower, "changed"),
        Cure("clip the gradients", clip, "changed"),
        Cure("warm the rate up over the first hundreds of steps", "", "changed"),
    )
    return Finding(CAUSE, seen.grade, claim, evidence_of(seen), optimizer_line(record, seen), cures)


def _keras(record: RecordLike) -> bool:
    used = {event.framework for event in record.of(Adapter) if event.state == "on"}
    return "torch" not in used and bool(used)
