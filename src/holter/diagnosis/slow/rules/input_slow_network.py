"""Samples that come over a network slower than the step.

What it sees: steps that wait for data while whoever fetches them was met in a socket, TLS or an HTTP or storage
library.
Why it matters: a request for each sample costs a round trip, however fast the line.
May be confused with: a hang in a socket, where nothing comes at all; a network mount, which looks like a disk.
How sure: established when the wait was measured, is most of the step, and the line was met; else supported.
Cure: more workers, since they only wait; a copy on a local disk before the run; one request for many samples.
"""

from __future__ import annotations

from dataclasses import replace

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.input_bound import input_finding
from holter.finding import Cure, Ending, Finding

CAUSE = "input-bound.slow-network"
YIELDS_TO = ("thrash", "hang", "cpu.oversubscribed")


def examine(record: RecordLike, ending: Ending) -> Finding | None:  # noqa: ARG001 - the shape of a rule
    """Name the line that asks over the network."""
    found = input_finding(record, "slow-network", "{who} wait{s} for answers over the network{where}")
    if found is None:
        return None
    copied = Cure(
        "copy the data to a local disk before the run, or ask for many samples with one request", "", "equivalent"
    )
    return replace(found, cures=(*found.cures[:1], copied))
