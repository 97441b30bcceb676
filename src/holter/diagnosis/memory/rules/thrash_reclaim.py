"""Pages of files that are thrown out for want of room and read again and again.

What it sees: file pages that had been in memory and come back at every second of the training (refaults), the run's
major faults, the share of time in which it waited for memory, and how little it computed meanwhile.
Why it matters: a memory-mapped dataset that is a little larger than its share of memory makes each step read the
disk; nothing fails, and the CPU looks idle.
May be confused with: data that stream by once, in order, while the steps keep their pace; slow storage, which is slow
for the first reading as well; a run that is near its limit and stays there.
How sure: established when the wait was measured for most of the training and next to nothing was computed; supported
when the wait was shorter.
Cure: read in order, shuffle within blocks, a smaller dtype, more memory.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.paging import RECLAIM, paging_of
from holter.diagnosis.memory.paging_words import evidence_of, line_of, price
from holter.finding import Cure, Ending, Finding, Grade
from holter.units import duration, size

CAUSE = "thrash.reclaim"


def examine(record: RecordLike, ending: Ending) -> Finding | None:  # noqa: ARG001 - the shape of a rule
    """Say how much was read again, for how long, and what it cost."""
    found = paging_of(record)
    if found is None or found.kind != RECLAIM:
        return None
    claim = (
        f"files do not fit into memory beside the run: {size(found.rate)} that had been evicted were read again "
        f"each second, in {duration(found.seconds)} of {duration(found.of)} of training{price(found)}"
    )
    slower = found.slowdown is not None and found.slowdown >= 2
    sure = slower or ((found.waited or 0.0) >= 0.12 and (found.computing or 0.0) < 0.35)
    grade: Grade = "established" if sure else "supported"
    cures = (
        Cure("read the data in order and shuffle within a block that fits into memory", "", "equivalent"),
        Cure("make the file smaller (float16, uint8, only the columns that are used)", "", "equivalent"),
        Cure("a smaller batch or fewer workers leave more room for the file", "", "equivalent"),
        Cure("or give the run more memory: what it reads then stays there"),
    )
    return Finding(CAUSE, grade, claim, evidence_of(record, found), line_of(record), cures)
