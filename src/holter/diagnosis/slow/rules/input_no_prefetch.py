"""Nobody fetches the next batch while the step computes.

What it sees: a loader without workers, a generator or a pipeline without prefetch, and steps that spend 40 % and more
of the training waiting for it, in work that only waits or that would fit beside the step's computing.
Why it matters: fetching and computing take turns where they could go side by side.
May be confused with: a transform that takes all of a core for longer than the step, which workers only divide.
How sure: established when the wait was measured, is most of the step, and the line was met; else supported.
Cure: workers, or prefetch at the end of the pipeline.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.input_bound import input_finding
from holter.finding import Ending, Finding

CAUSE = "input-bound.no-prefetch"
YIELDS_TO = ("thrash", "hang", "cpu.oversubscribed")


def examine(record: RecordLike, ending: Ending) -> Finding | None:  # noqa: ARG001 - the shape of a rule
    """Say that fetching and computing take turns, and where the fetching stands."""
    return input_finding(record, "no-prefetch", "{who} fetch{es} a batch only when the step asks for it{where}")
