"""Data workers that are started anew for every short epoch.

What it sees: a DataLoader with workers that do not persist, workers started again and again that lived for seconds,
and a trainer that was met starting or ending them, or waiting for their first batch.
Why it matters: each start imports the script and the libraries anew or copies the process, which takes longer than a
short epoch.
May be confused with: the one start at the beginning, which every run pays; a slow transform within the workers.
How sure: established when the wait was measured, is most of the step, and the line was met; else supported.
Cure: persistent_workers=True, or longer epochs.
"""

from __future__ import annotations

from dataclasses import replace

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.input_bound import culprit_of, input_finding, input_illness
from holter.finding import Ending, Finding

CAUSE = "input-bound.workers-restarted"
YIELDS_TO = ("thrash", "hang", "cpu.oversubscribed")


def examine(record: RecordLike, ending: Ending) -> Finding | None:  # noqa: ARG001 - the shape of a rule
    """Say how many workers were started, and name the loader's line."""
    illness = input_illness(record)
    found = input_finding(record, "workers-restarted", "{begun} workers were started, anew for each of {times} epochs")
    if illness is None or found is None:
        return None
    return replace(found, culprit=culprit_of(replace(illness[1], line=None)))
