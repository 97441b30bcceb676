"""Memory that grew steadily until there was none left.

What it sees: an OOM kill or a refused allocation after a curve that rose all along the steps.
Why it matters: a run that leaks dies at a random epoch; a smaller batch only moves the hour.
May be confused with: a batch or a spike too large (flat curve, then an end); caches that fill in the first steps.
How sure: supported when every quarter of the run carried its share of the growth up to the limit; else a
hypothesis. Which object grows is not known from the curve alone, so it is named by the process.
Cure: find what is kept from step to step: losses with their graph, lists, models made in the loop.
"""

from __future__ import annotations

from holter.diagnosis.exhaustion import exhaustion_of
from holter.diagnosis.rule import RecordLike
from holter.finding import Cure, Ending, Finding

CAUSE = "leak.native"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say how much memory grew per step, and up to which limit."""
    found = exhaustion_of(record, ending)
    if found is None or found.shape != "leak":
        return None
    kept = "losses with their graph (use loss.item()), lists, caches, models made in a loop"
    if found.in_worker:
        kept = "what the dataset stores in its worker, as a cache or a list"
    cures = (Cure(f"find what is kept from step to step: {kept}"),)
    culprit = found.frame.culprit if found.frame is not None else None
    return Finding(CAUSE, found.grade, found.words, found.evidence, culprit, cures)
