"""A number that is summed up with the autograd graph of each of its terms, until memory runs out within one epoch.

A validation without `no_grad` that adds its losses up: no step is taken, so that no trend shows, and a census follows
the graph behind the sum so far and no further: how much hangs on it can't be weighed.
"""

from __future__ import annotations

from dataclasses import dataclass

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.leak.growing_line import feeds_back
from holter.diagnosis.leak.retained import Holder, holders_of
from holter.diagnosis.memory.exhaustion import Exhaustion
from holter.finding import Evidence
from holter.units import count, size

_NODES = 64  # of the graph behind one number
_MIN_SHARE_OF_LIMIT = 0.25


@dataclass(frozen=True)
class SummedGraph:
    """The sum, and by how much memory grew after the last step."""

    holder: Holder
    words: str
    evidence: Evidence


def summed_graph(record: RecordLike, ran_out: Exhaustion) -> SummedGraph | None:
    """Find a number that its own line makes from itself again and again, where memory ran out between two steps."""
    sums = [one for one in holders_of(record) if one.single and one.saved and one.nodes >= _NODES and one.shape == ()]
    sums = [one for one in sums if feeds_back(record.source(one.file), one.variable)]
    curve, last = ran_out.curve, ran_out.progress.last_step_m
    if not sums or curve is None:
        return None
    holder = max(sums, key=lambda one: one.nodes)
    rise = curve.peak - ((curve.by(last) if last is not None else None) or curve.points[0][1])
    if rise < _MIN_SHARE_OF_LIMIT * (curve.limit or curve.peak):
        return None
    steps = count(ran_out.progress.step or 0)
    words = f"memory grew by {size(rise)} after {steps} steps, with no further one, and ran out"
    return SummedGraph(
        holder,
        words,
        Evidence("holder", f"{holder.where}: a graph of {count(holder.nodes)} nodes and more", holder.when),
    )
