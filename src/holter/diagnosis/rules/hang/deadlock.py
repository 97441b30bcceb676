"""Threads or processes that wait for each other.

What it sees: a hung run whose main thread stands in a lock, a queue, a join or a wait, while the tree
uses no CPU.
Why it matters: nothing will ever move again; every hour of waiting is lost.
May be confused with: a wait for data, a device, another rank or a disk: each of those is told as itself.
How sure: established when the frames were the same twice and the CPU idle; a hypothesis where only the line is known.
Cure: the lock or queue on that line: a timeout, one order of locks, a reader for the queue.
"""

from __future__ import annotations

from holter.diagnosis.blocking import blocked_in
from holter.diagnosis.rule import RecordLike
from holter.finding import Cure, Ending, Finding

CAUSE = "hang.deadlock"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the lock, queue or join that the run waits in."""
    found = blocked_in(record, ending)
    if found is None or found.detail != "deadlock":
        return None
    at = f" at {found.line.short}" if found.line is not None else ""
    claim = f"the process{at} {found.words}"
    line = found.line
    cures = (
        Cure("find who should release it: the other threads' stacks are in the record", "", "exact"),
        Cure("give the wait a timeout, and take locks in one order everywhere", "", "exact"),
    )
    culprit = line.culprit if line is not None else None
    return Finding(CAUSE, found.grade, claim, found.evidence, culprit, cures)
