"""Shared memory (/dev/shm) that ran out.

What it sees: a bus error in a data worker, or an error that names shared memory, and how full /dev/shm was.
Why it matters: containers give /dev/shm 64 MB; batches of workers travel through it, and the error names neither.
May be confused with: a bus error from a truncated memory-mapped file, with room left in /dev/shm; a full disk.
How sure: established when the error names shared memory; supported for a bus error in a worker with /dev/shm full.
Cure: a larger /dev/shm, fewer workers, or the file_system sharing strategy.
"""

from __future__ import annotations

import re

from holter.diagnosis.core.evidence import loader_with_workers
from holter.diagnosis.core.frames import culprit_on
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.raised import culprit_of, message_of, raised_at_end
from holter.diagnosis.ending.tracebacks import printed_text
from holter.finding import Cure, Ending, Evidence, Finding, Grade
from holter.record.events.timeline import SharedMemory
from holter.units import share, size

CAUSE = "resource.shared-memory"

_NAMED = re.compile(
    r"insufficient shared memory|unable to (?:open|write to|allocate) (?:shared memory|file </torch_)|"
    r"(?:No space left on device|\[Errno 28\])[^\n]{0,200}/dev/shm|/dev/shm[^\n]{0,200}No space left|"
    r"torch_shm[^\n]{0,120}(?:No space left|\(28\))|unable to mmap \d+ bytes from file </torch_"
)
_BUS = re.compile(r"DataLoader worker .{0,60}killed by signal: Bus error")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the shared memory that ran out, with its size and what was left."""
    # A trainer whose worker died of it may wait for that worker for ever, until someone ends it.
    if ending.kind not in ("exception", "crashed", "stopped-early", "hung", "killed", "interrupted"):
        return None
    raised = raised_at_end(record)
    said = message_of(raised)
    late = printed_text(record)[-20000:]
    named = _NAMED.search(said) or _NAMED.search(late)
    bus = _BUS.search(said) or _BUS.search(late)
    total, least = _room(record)
    full = total is not None and least is not None and least < max(0.1 * total, 8e6)
    crashed = ending.kind == "crashed" and ending.signal == "SIGBUS"
    if not named and not (full and (bus or crashed)):
        return None
    if named and "Too many open files" in said + late:
        return None
    grade: Grade = "established" if named else "supported"
    claim = "shared memory (/dev/shm) ran out" + (f": it has {size(total)} in all" if total else "")
    evidence = []
    if total and least is not None and full:
        claim = f"/dev/shm ran out: at least {share(1 - least / total)} of its {size(total)} was in use"
        evidence.append(Evidence("/dev/shm", f"{size(least)} of {size(total)} free at the least"))
    if raised is not None and (named or bus):
        evidence.append(Evidence("exception", raised.headline, raised.when))
    elif bus or crashed:
        evidence.append(Evidence("signal", "SIGBUS, as when a page of shared memory cannot be had"))
    # Where no traceback leads to a line: the loader's, whose batches travel through shared memory.
    culprit = (culprit_of(raised) if named or bus else None) or culprit_on(loader_with_workers(record))
    cures = (
        Cure("give the container more: docker run --shm-size=8g (or --ipc=host)", "", "exact"),
        Cure("or need less: fewer workers, or a smaller prefetch_factor, in the DataLoader", "", "equivalent"),
    )
    return Finding(CAUSE, grade, claim, tuple(evidence), culprit, cures)


def _room(record: RecordLike) -> tuple[float | None, float | None]:
    readings = [(r.total, r.free) for _, r in record.readings(SharedMemory)]
    known = [(total, free) for total, free in readings if total and free is not None]
    if not known:
        return None, None
    # A worker's pages are freed with it: the least of the last minute counts, not what was left at the end.
    return known[-1][0], min(free for _, free in known[-600:])
