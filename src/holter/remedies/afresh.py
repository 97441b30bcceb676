"""What is left behind by a new process: memory that leaked, a wait that never ended.

Nothing in the training is different. Memory starts afresh, so a leak gets the same room again: the run comes on by as
many steps as it did before, and the ledger ends it where it does not.
"""

from __future__ import annotations

from holter.remedies.remedy import Remedy

CAUSES = ("leak", "hang")


def prescribe(tried: int) -> Remedy:  # noqa: ARG001 - how often is the ledger's to judge
    """A new process, from the last state."""
    return Remedy("afresh", "a new process with fresh memory", "equivalent", "the script's own variables start anew")
