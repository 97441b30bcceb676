"""The words and figures with which the four rules about NaN tell what was seen."""

from __future__ import annotations

from holter.diagnosis.nonfinite.nonfinite import Nonfinite, magnitude
from holter.finding import Evidence

_FIRST = {
    "loss": "the loss became non-finite",
    "gradient": "a gradient became non-finite while the loss was still finite",
    "parameter": "a weight became non-finite",
    "input": "the loss became non-finite",
}
NOT_TRAINED = "a tensor that no gradient goes to"


def figure(value: float | None) -> str:
    """Give a number in at most four digits."""
    return "?" if value is None else f"{value:.4g}"


def first_bad(seen: Nonfinite) -> str:
    """Say what went first, and when."""
    words = _FIRST.get(seen.what, _FIRST["loss"])
    if isinstance(seen.event.loss, float) and seen.what in ("input", "parameter"):
        by = f"by step {seen.step:,}" if seen.step else "in training"
        return f"weights became non-finite {by}, while the loss still looked finite"
    if seen.what == "parameter":
        name = seen.event.params.first if seen.event.params is not None else ""
        words = f"the weights ({name} first) became non-finite" if name else words
    return f"{words} {seen.at}"


def at_operation(seen: Nonfinite) -> str:
    """Say which operation it was, at which edge, and in which module."""
    event = seen.event
    op, edge, module = event.op, event.edge, event.module
    within = f" in {module}" if module else ""
    if op and edge:
        return f"{edge} (`{op}`{within})" if op not in edge else f"{edge}{within}"
    if op:
        return f"`{op}`{within} gave a non-finite value from finite ones"
    slopes = event.slopes
    names = list(dict.fromkeys(row.op for row in slopes if row.sure)) or [row.op for row in slopes]
    if names and seen.static:
        others = f", as on {len(slopes) - 1} other lines" if len(slopes) > 1 else ""
        came = f"it came in with {NOT_TRAINED}: " if event.outside else ""
        finite = ", and the data was finite" if not event.outside else ""
        return f"{came}`{names[0]}` stands there with nothing that keeps it from its edge{others}{finite}"
    if names:
        return f"the slope of {' or '.join(f'`{name}`' for name in names[:3])} has an edge that a value has met"
    return "which operation it was is not known"


def evidence_of(seen: Nonfinite) -> tuple[Evidence, ...]:
    """Give what was read: the first bad step, the losses before it, weights and batch."""
    event, when = seen.event, seen.when
    loss = event.loss if isinstance(event.loss, str) else ""
    found = [Evidence("first bad step", f"{seen.step or '?'}: {seen.what} {loss}".rstrip(), when)]
    if event.losses:
        last = [f"{value:.4g}" for value in event.losses[-6:] if isinstance(value, float)]
        found.append(Evidence("losses before it", ", ".join(last)))
    if event.norms:
        last = [f"{value:.4g}" if isinstance(value, float) else str(value)[:8] for value in event.norms[-4:]]
        found.append(Evidence("gradient norms", ", ".join(last)))
    if event.params is not None:
        bad, of = event.params.bad or 0, event.params.of or 0
        state = f"{bad} of {of} not finite" if bad else f"all {of} finite"
        state += " after that step's update" if event.updated else ""
        if bad < of:
            state += f", largest {figure(magnitude(event.params.max))}"  # of those that are finite
        found.append(Evidence("weights", f"{state}, {event.params.dtype}".rstrip(", ")))
    if event.inputs is not None:
        known = (event.inputs.bad, f"largest {figure(magnitude(event.inputs.max))}", event.inputs.dtype)
        found.append(Evidence("batch", f"{event.inputs.name}: {', '.join(known)}"))
    elif event.outside:
        found.append(Evidence("batch", f"NaN in {NOT_TRAINED}"))
    elif event.looked_at:
        found.append(Evidence("batch", "every input and target finite"))
    if event.scale is not None:
        found.append(Evidence("loss scale", figure(event.scale)))
    if seen.message:
        found.append(Evidence("exception", seen.message, when))
    return tuple(found)
