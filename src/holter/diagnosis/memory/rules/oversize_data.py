"""The data is loaded whole, and does not fit.

What it sees: lack of memory before the first step, with no model made yet.
Why it matters: the limit is met by the size of a file, not by the training.
May be confused with: a model that does not fit; a leak in a loop that Holter sees no steps of.
How sure: a hypothesis, or supported where a single allocation asked for more than the limit.
Cure: stream or memory-map it.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.exhaustion import exhaustion_of
from holter.finding import Cure, Ending, Finding

CAUSE = "oversize.data"
YIELDS_TO = ("leak", "oversize.neighbour")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say what was reached while data was being loaded."""
    found = exhaustion_of(record, ending)
    if found is None or found.shape != "data":
        return None
    cures = (
        Cure('memory-map it: np.load(path, mmap_mode="r")', "", "equivalent"),
        Cure("stream it: an iterable dataset, or tf.data from files", "", "equivalent"),
    )
    culprit = found.frame.culprit if found.frame is not None else None
    return Finding(
        CAUSE, found.grade, f"loading may take more than there is: {found.words}", found.evidence, culprit, cures
    )
