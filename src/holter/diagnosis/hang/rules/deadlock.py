"""Threads or processes that wait for each other.

What it sees: a hung run whose main thread stands in a lock, a queue, a join or a wait, while the tree
uses no CPU.
Why it matters: nothing will ever move again; every hour of waiting is lost.
May be confused with: a wait for data, a device, another rank or a disk: each of those is told as itself.
How sure: established when the frames were the same twice and the CPU idle; a hypothesis where only the line is known.
Cure: the lock or queue on that line: a timeout, one order of locks, a reader for the queue.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.hang.blocking import blocked_in
from holter.facts.lock_lines import takes_a_lock
from holter.finding import Cure, Ending, Finding

CAUSE = "hang.deadlock"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the lock, queue or join that the run waits in."""
    found = blocked_in(record, ending)
    if found is None or found.detail != "deadlock":
        return None
    cure = found.cure or "give the wait a timeout: it then raises where it waits"
    if found.others and not all(takes_a_lock(code) for code in (found.line_code, found.others[0][1].code)):
        cure = f"see why that thread does not go on at {found.others[0][1].short}"
    elif found.others:
        cure = "take the locks in one order in all threads; a timeout on the wait shows it as an error"
    cures = (Cure(cure),)
    return Finding(CAUSE, found.grade, found.claim, found.evidence, found.culprit, cures)
