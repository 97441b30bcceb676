"""The words and figures with which the four rules about NaN tell what was seen."""

from __future__ import annotations

from holter.diagnosis.core.fields import number, part, rows, text, whole
from holter.diagnosis.nonfinite.nonfinite import Nonfinite, magnitude
from holter.finding import Evidence

_FIRST = {
    "loss": "the loss became non-finite",
    "gradient": "a gradient became non-finite while the loss was still finite",
    "parameter": "a weight became non-finite",
    "input": "the loss became non-finite",
}


def figure(value: float | None) -> str:
    """Give a number in at most four digits."""
    return "?" if value is None else f"{value:.4g}"


def first_bad(seen: Nonfinite) -> str:
    """Say what went first, and when."""
    words = _FIRST.get(seen.what, _FIRST["loss"])
    if number(seen.event, "loss") is not None and seen.what in ("input", "parameter"):
        by = f"by step {seen.step:,}" if seen.step else "in training"
        return f"weights became non-finite {by}, while the loss still looked finite"
    if seen.what == "parameter":
        name = text(part(seen.event, "params"), "first")
        words = f"the weights ({name} first) became non-finite" if name else words
    return f"{words} {seen.at}"


def at_operation(seen: Nonfinite) -> str:
    """Say which operation it was, at which edge, and in which module."""
    event = seen.event
    op, edge, module = text(event, "op"), text(event, "edge"), text(event, "module")
    within = f" in {module}" if module else ""
    if op and edge:
        return f"{edge} (`{op}`{within})" if op not in edge else f"{edge}{within}"
    if op:
        return f"`{op}`{within} gave a non-finite value from finite ones"
    slopes = rows(event, "slopes")
    names = list(dict.fromkeys(text(row, "op") for row in slopes if row.get("sure") is True)) or [
        text(row, "op") for row in slopes
    ]
    if names and event.get("static") is True:
        others = f", as on {len(slopes) - 1} other lines" if len(slopes) > 1 else ""
        return f"`{names[0]}` stands there with nothing that keeps it from its edge{others}, and the data was finite"
    if names:
        return f"the slope of {' or '.join(f'`{name}`' for name in names[:3])} has an edge that a value has met"
    return "which operation it was is not known"


def evidence_of(seen: Nonfinite) -> tuple[Evidence, ...]:
    """Give what was read: the first bad step, the losses before it, weights and batch."""
    event, when = seen.event, seen.when
    what = text(event, "what") or "loss"
    found = [Evidence("first bad step", f"{seen.step or '?'}: {what} {text(event, 'loss')}".rstrip(), when)]
    losses = event.get("losses")
    if isinstance(losses, list) and losses:
        last = [f"{value:.4g}" for value in losses[-6:] if isinstance(value, (int, float))]
        found.append(Evidence("losses before it", ", ".join(last)))
    norms = event.get("norms")
    if isinstance(norms, list) and norms:
        last = [f"{value:.4g}" if isinstance(value, (int, float)) else str(value)[:8] for value in norms[-4:]]
        found.append(Evidence("gradient norms", ", ".join(last)))
    params = part(event, "params")
    if params:
        bad, of = whole(params, "bad") or 0, whole(params, "of") or 0
        state = f"{bad} of {of} not finite" if bad else f"all {of} finite"
        state += " after that step's update" if event.get("updated") is True else ""
        largest = magnitude(params, "max")
        found.append(Evidence("weights", f"{state}, largest {figure(largest)}, {text(params, 'dtype')}".rstrip(", ")))
    inputs = part(event, "inputs")
    if inputs:
        known = (text(inputs, "bad"), f"largest {figure(magnitude(inputs, 'max'))}", text(inputs, "dtype"))
        found.append(Evidence("batch", f"{text(inputs, 'name')}: {', '.join(known)}"))
    elif whole(event, "looked_at"):
        found.append(Evidence("batch", "every input and target finite"))
    scale = number(event, "scale")
    if scale is not None:
        found.append(Evidence("loss scale", figure(scale)))
    if text(event, "said"):
        found.append(Evidence("exception", text(event, "said"), when))
    return tuple(found)
