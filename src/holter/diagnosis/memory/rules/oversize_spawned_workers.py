"""Workers that are spawned get a copy of the dataset each, and the copies do not fit.

What it sees: memory that ran out while most looks found the trainer or a new worker sending or reading the dataset, as
the start methods `spawn` and `forkserver` do for each worker.
Why it matters: with N workers the dataset is in memory N + 1 times before the first batch.
May be confused with: forked workers, which share it and copy it page by page; a dataset that alone does not fit; a
script without `if __name__ == "__main__"`, which loads it anew in each worker.
How sure: supported, by the looks at what was being done while memory filled.
Cure: tensors, which are sent through shared memory; a file that each worker opens; forked workers; fewer workers.
"""

from __future__ import annotations

from holter.diagnosis.core.evidence import loader_with_workers
from holter.diagnosis.core.frames import culprit_on
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.exhaustion import exhaustion_of
from holter.finding import Cure, Ending, Finding
from holter.units import count

CAUSE = "oversize.spawned-workers"
YIELDS_TO = ("oversize.neighbour",)


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say how many workers there were to be, and what was reached while they were started."""
    found = exhaustion_of(record, ending)
    if found is None or found.shape != "spawned":
        return None
    loader = loader_with_workers(record)
    workers = loader.num_workers or 0
    each = f"each of {count(workers)} data workers" if workers > 1 else "the data worker"
    claim = f"{each} is sent a copy of the dataset, since it is not forked but started anew: {found.words}"
    cures = (
        Cure("hold the samples in tensors: they go to such workers through shared memory, and not as copies"),
        Cure("or keep only the file's path in the dataset, and open it in the worker", "", "exact"),
        Cure("or fork the workers, where no thread or GPU was used before", 'multiprocessing_context="fork"', "exact"),
        Cure("use fewer workers", "", "exact"),
    )
    return Finding(CAUSE, found.grade, claim, found.evidence, culprit_on(loader), cures)
