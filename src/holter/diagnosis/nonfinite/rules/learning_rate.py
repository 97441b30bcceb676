"""The training ran away: losses or weights grew until they were non-finite.

What it sees: the first loss or gradient that is non-finite, and the losses before it far above their usual level, or
weights of a size that nothing learns.
Why it matters: all that follows is lost, and the run goes on to its end without a word.
May be confused with: one bad batch, which comes out of a calm history; a function at its edge; half precision.
How sure: supported when the losses grew over several steps or a weight is huge; else a hypothesis.
Cure: data brought to a mean of 0 and a deviation of 1, where it is far from that; a smaller rate; clipped gradients.
"""

from __future__ import annotations

import math

from holter.diagnosis.core.evidence import frameworks_on
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.nonfinite.lines import line_that_moves_the_rate, number_written, optimizer_line
from holter.diagnosis.nonfinite.nonfinite import Growth, Nonfinite, calm_before, magnitude, nonfinite_of
from holter.diagnosis.nonfinite.words import evidence_of, figure, first_bad
from holter.finding import Culprit, Cure, Ending, Evidence, Finding
from holter.record.events.timeline import StepWindow
from holter.source.edits import replaced, with_argument, with_value
from holter.source.lines import settings_of

CAUSE = "nan.learning-rate"

_FAR_FROM_SCALED = 50.0  # data with a deviation of 1 seldom has a value beyond 10
_FIRST_STEPS = 60  # as many losses are kept: fewer are all that there were


def examine(record: RecordLike, _ending: Ending) -> Finding | None:
    """Say how the loss grew, and name the line that sets the rate."""
    seen = nonfinite_of(record)
    if seen is None or seen.detail != "learning-rate" or _came_out_of_calm(seen):
        return None
    rate, growth = seen.event.lr, seen.growth
    claim = first_bad(seen)
    if growth is not None and growth.clear:
        claim += f": before it the loss grew from {figure(growth.usual)} to {figure(growth.top)}"
    largest = magnitude(seen.event.params.max) if seen.event.params is not None else None
    if largest is not None and largest >= 1e5:
        claim += f", and the largest weight was {figure(largest)}"
    elif seen.grade != "hypothesis" and (growth is None or not growth.clear):
        claim += (
            ": the batch was finite and no operation was seen at its edge, so that the update itself is left to blame"
        )
    first = _rate_at_first(record, seen) if rate is not None else None
    moved = line_that_moves_the_rate(record) if first is not None and rate is not None and rate >= 2 * first else None
    if rate is not None:
        claim += f"; the learning rate was {figure(rate)}"
        claim += f", risen from {figure(first)}" if moved is not None and first is not None else ""
    line = moved or optimizer_line(record, seen)
    evidence = (*evidence_of(seen), *_written(record, rate, line))
    return Finding(CAUSE, seen.grade, claim, evidence, line, _cures(record, seen, line, moved is not None))


def _rate_at_first(record: RecordLike, seen: Nonfinite) -> float | None:
    rates = (window.lr for window in record.of(StepWindow) if window.pid == seen.event.pid and window.lr)
    return next(rates, None)


def _came_out_of_calm(seen: Nonfinite) -> bool:
    """Tell a guess that the losses before it refute: nothing ran away, and no look has ruled out anything else."""
    return seen.grade == "hypothesis" and calm_before(seen.event, seen.growth)


def _written(record: RecordLike, rate: float | None, line: Culprit | None) -> tuple[Evidence, ...]:
    """Say where the number of the rate is written, where that is not the optimizer's own line."""
    found = number_written(record, rate) if rate else None
    if found is None or line is None or (found[0].file, found[0].line) == (line.file, line.line):
        return ()
    return (Evidence("the rate", f"written in line {found[0].line}: {found[0].code}"),)


def _cures(record: RecordLike, seen: Nonfinite, line: Culprit | None, moved: bool) -> tuple[Cure, ...]:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0) before optimizer.step()"
    if seen.event.framework in ("keras", "tensorflow") or _keras(record):
        clip = "clipnorm=1.0 in the optimizer"
    smaller = (_smaller_rate(record, seen, line), Cure("clip the gradients", clip, "changed"))
    unscaled = _unscaled(seen)
    if unscaled:
        # A rate that suits such data would be too small to learn anything.
        return (Cure(f"scale the data: {unscaled}", "x = (x - x.mean(0)) / (x.std(0) + 1e-8)", "changed"), *smaller)
    if moved:
        return (Cure("bound the rate where the script raises it: min(rate, the largest that is meant)"), *smaller)
    return (*smaller, Cure("warm the rate up over the first hundreds of steps", "", "changed"))


def _unscaled(seen: Nonfinite) -> str:
    """Say what of the data is far from a mean of 0 and a deviation of 1; empty where nothing is known to be."""
    largest, first = seen.event.largest or 0.0, next((x for x in seen.event.losses if isinstance(x, float)), 0.0)
    if largest >= _FAR_FROM_SCALED:
        return f"values up to {figure(largest)} go into the model"
    if first >= _FAR_FROM_SCALED**2 and len(seen.event.losses) < _FIRST_STEPS:
        return f"the first loss was {figure(first)}, so that the targets are large numbers"
    return ""


def _smaller_rate(record: RecordLike, seen: Nonfinite, line: Culprit | None) -> Cure:
    rate = seen.event.lr
    if not rate:
        return Cure("a smaller learning rate: a tenth of the present one", "", "changed")
    lower = figure(_stable(rate, seen.growth))
    how = ""
    if line is not None:
        lines = record.source(line.file)
        at = [one for one in (*settings_of(lines, "lr"), *settings_of(lines, "learning_rate")) if one[0] == line.line]
        set_here = with_value(lines, line.line, at[0][1], lower) if len(at) == 1 else ""
        how = set_here or with_argument(lines, line.line, figure(rate), lower)
    written = number_written(record, rate) if not how else None
    if written is not None:
        how = replaced(record.source(written[0].file), written[1], lower)
    return Cure(f"a smaller learning rate: {lower} instead of {figure(rate)}", how, "changed")


def _stable(rate: float, growth: Growth | None) -> float:
    """Give the rate that fits the growth that was seen.

    Near a minimum the distance from it is multiplied by `1 - rate * curvature` at each step, and the loss by its
    square. What the loss was multiplied by gives the curvature; half the largest rate that does not grow is safe.
    """
    lower = rate / 10
    if growth is not None and growth.clear and growth.rising:
        each = math.sqrt(max(1.0, growth.times) ** (1 / growth.rising))
        lower = min(lower, rate / (1 + each))
    digit = 10.0 ** math.floor(math.log10(lower))
    return float(f"{(3 if lower >= 3 * digit else 1) * digit:.3g}")


def _keras(record: RecordLike) -> bool:
    used = frameworks_on(record)
    return "torch" not in used and bool(used)
