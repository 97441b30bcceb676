"""A run as two small curves beside its numbers, for the output of a notebook's cell: one piece of HTML, no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from holter.views.plain import clean

_WIDTH, _HEIGHT, _PAD = 220, 44, 3


@dataclass(frozen=True)
class Curve:
    """Readings evenly over time, None where there is none; `limit` is the line that they must not cross."""

    label: str
    words: str  # the last reading
    values: Sequence[float | None]
    limit: float | None = None
    from_zero: bool = True


def mini_chart(words: str, curves: Sequence[Curve]) -> str:
    """The words with the curves below. The colours are those of the page around it, light or dark."""
    drawn = "".join(_curve(one) for one in curves if sum(value is not None for value in one.values) > 1)
    row = f'<div style="display:flex;flex-wrap:wrap;gap:4px 28px">{drawn}</div>' if drawn else ""
    return f'<div style="font:12px/1.5 monospace;margin:2px 0">{escape(clean(words))}{row}</div>'


def _curve(curve: Curve) -> str:
    known = [value for value in curve.values if value is not None]
    near = curve.limit if curve.limit and curve.limit < 3 * max(known) else None  # far away it says nothing
    top = max([*known, *([near] if near else [])])
    low = 0.0 if curve.from_zero else min(known)
    span = (top - low) or 1.0

    def y(value: float) -> str:
        return f"{_HEIGHT - _PAD - (value - low) / span * (_HEIGHT - 2 * _PAD):.1f}"

    apart = _WIDTH / max(1, len(curve.values) - 1)
    points = " ".join(f"{at * apart:.1f},{y(value)}" for at, value in enumerate(curve.values) if value is not None)
    limit = (
        f'<line x1="0" x2="{_WIDTH}" y1="{y(near)}" y2="{y(near)}" stroke="#d0453c" stroke-dasharray="4 3"/>'
        if near
        else ""
    )
    label = f"{escape(clean(curve.label))} {escape(clean(curve.words))}"
    return (
        f'<div>{label}<svg role="img" aria-label="{label}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" style="display:block">{limit}'
        f'<polyline points="{points}" fill="none" stroke="#4f8fc9" stroke-width="1.6"/></svg></div>'
    )
