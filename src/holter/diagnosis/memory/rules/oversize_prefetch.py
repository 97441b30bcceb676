"""Batches that workers make ahead of the trainer do not fit.

What it sees: memory that ran out while shared memory held many finished batches, and the workers those in the making.
Why it matters: a loader keeps `num_workers` times `prefetch_factor` batches ready, whatever one of them takes.
May be confused with: a step that does not fit; workers that copy or cache a dataset; a /dev/shm that is too small.
How sure: supported when shared memory and the workers' own memory are most of what the run grew by.
Cure: a smaller prefetch_factor, fewer workers, smaller batches.
"""

from __future__ import annotations

from holter.diagnosis.core.evidence import loader_with_workers
from holter.diagnosis.core.frames import culprit_on
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.exhaustion import exhaustion_of
from holter.diagnosis.memory.loader_memory import PREFETCH_BY_DEFAULT
from holter.finding import Cure, Ending, Evidence, Finding
from holter.units import count, size

CAUSE = "oversize.prefetch"
YIELDS_TO = ("leak", "oversize.neighbour")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say how many batches may wait, and what they took."""
    found = exhaustion_of(record, ending)
    if found is None or found.waiting is None:
        return None
    loader, waiting = loader_with_workers(record), found.waiting
    workers, ahead = loader.num_workers or 0, loader.prefetch_factor or PREFETCH_BY_DEFAULT
    claim = (
        f"batches that wait for the trainer do not fit: up to {count(workers * ahead)} of them ({count(workers)} "
        f"workers, prefetch_factor {count(ahead)}), {size(waiting.shared)} in shared memory: {found.words}"
    )
    evidence = (*found.evidence, Evidence("shared memory", f"{size(waiting.shared)} more than before the workers"))
    cures = [
        Cure("use fewer workers", "", "exact"),
        Cure("smaller batches with gradient accumulation", "", "equivalent"),
    ]
    if ahead > 1:
        cures.insert(
            0, Cure("make fewer batches ahead", f"prefetch_factor={min(PREFETCH_BY_DEFAULT, ahead - 1)}", "exact")
        )
    return Finding(CAUSE, found.grade, claim, evidence, culprit_on(loader), tuple(cures))
