"""What does not fit into memory though nothing leaks, by the shape of the curve that led there."""

from __future__ import annotations

import re

from holter.diagnosis.core.evidence import loader_with_workers
from holter.diagnosis.core.frames import Frame, culprit_on
from holter.diagnosis.core.rule import RecordLike, Rule
from holter.diagnosis.memory.exhaustion import GOOD_SHARE, exhaustion_of
from holter.diagnosis.memory.large_batch import large_batch_of
from holter.diagnosis.memory.loader_memory import PREFETCH_BY_DEFAULT
from holter.diagnosis.memory.next_commands import next_commands
from holter.diagnosis.memory.worker_pages import taken_by_workers
from holter.finding import Culprit, Cure, Ending, Evidence, Finding
from holter.source.lines import culprit_at, settings_of
from holter.units import count, size

_TRAINER_RUNS = re.compile(r"\.(?:fit|train)\(")
_NOT_TRAINING = re.compile(r"eval|val|test|predict", re.IGNORECASE)


def data(record: RecordLike, ending: Ending) -> Finding | None:
    """The data is loaded whole, and does not fit.

    What it sees: lack of memory before the first step, with no model made yet; or in the first steps, filled by data
    workers with far more than their batches.
    Why it matters: the limit is met by the size of a file, not by the training.
    May be confused with: a model that does not fit; a leak in a loop that Holter sees no steps of.
    How sure: a hypothesis; supported where a single allocation asked for more than the limit, or where data workers
    took most of the memory and far more than their batches.
    Cure: stream or memory-map it.
    """
    found = exhaustion_of(record, ending)
    if found is None or found.shape != "data":
        return None
    cures = [
        Cure('memory-map it: np.load(path, mmap_mode="r")', "", "equivalent"),
        Cure("stream it: an iterable dataset, or tf.data from files", "", "equivalent"),
    ]
    if found.curve is not None and taken_by_workers(record)[1] >= GOOD_SHARE * found.curve.peak:
        cures.append(Cure("use fewer workers: each loads its own", "", "equivalent"))
    takes = "may take" if found.grade == "hypothesis" else "takes"
    claim = f"loading {takes} more than there is: {found.words}"
    return Finding("oversize.data", found.grade, claim, found.evidence, found.culprit, tuple(cures))


def libraries(record: RecordLike, ending: Ending) -> Finding | None:
    """Python and the libraries that the script imports do not fit.

    What it sees: lack of memory before the first step, while most looks found a library being imported.
    Why it matters: the limit is smaller than an empty training: no model, batch or dataset is to blame.
    May be confused with: a module of the script's own that loads data when it is imported; a model that does not fit.
    How sure: supported, by the looks at what was being done while memory filled.
    Cure: a larger limit, fewer imports.
    """
    found = exhaustion_of(record, ending)
    if found is None or found.shape != "libraries":
        return None
    cures = (
        Cure("raise the limit: the training itself needs memory beyond what the imports take"),
        Cure("import less in this process: only what the training uses", "", "equivalent"),
    )
    claim = f"Python and the libraries that the script imports do not fit: {found.words}"
    return Finding("oversize.libraries", found.grade, claim, found.evidence, found.culprit, cures)


def model(record: RecordLike, ending: Ending) -> Finding | None:
    """The model and its optimizer alone do not fit.

    What it sees: lack of memory before the first step, after a model was made or on the device.
    Why it matters: no batch size helps.
    May be confused with: a dataset that is loaded whole before the first step; a first batch that is too large.
    How sure: a hypothesis, or supported where a single allocation asked for more than the limit.
    Cure: lower precision, another optimizer, sharding.
    """
    found = exhaustion_of(record, ending)
    if found is None or found.shape != "model":
        return None
    cures = (
        Cure("load in bfloat16, or a smaller model", "", "changed"),
        Cure("an optimizer with less state (SGD, Adafactor, 8-bit Adam)", "", "changed"),
        Cure("shard it (FSDP, ZeRO)", "", "equivalent"),
        *next_commands(record, healed=False),
    )
    claim = f"the model may not fit: {found.words}"
    return Finding("oversize.model", found.grade, claim, found.evidence, found.culprit, cures)


def batch(record: RecordLike, ending: Ending) -> Finding | None:
    """One step needs more memory than there is.

    What it sees: lack of memory within the first steps.
    Why it matters: the run never had a chance at this batch size.
    May be confused with: a model that does not fit even before the first step; a leak, which takes many steps.
    How sure: supported when a step or two had been done or the allocator said what it was asked for; else a hypothesis.
    Cure: smaller micro-batches with accumulation, mixed precision, activation checkpointing.
    """
    found = exhaustion_of(record, ending)
    if found is None or found.shape != "batch":
        return None
    cures = (
        Cure("a smaller batch with gradient accumulation: half of it, and two steps added up", "", "equivalent"),
        Cure("activation checkpointing: less memory, about a third more time", "", "equivalent"),
        Cure("mixed precision (bfloat16)", "", "changed"),
        *next_commands(record),
    )
    culprit = _line_to_change(record, found.frame) if found.frame is not None else None
    claim = f"one step does not fit: {found.words}"
    return Finding("oversize.batch", found.grade, claim, found.evidence, culprit, cures)


def _line_to_change(record: RecordLike, frame: Frame) -> Culprit:
    """Name the batch's size where a trainer runs the loop: the line that starts it says nothing of the size."""
    lines = record.source(frame.file)
    if _TRAINER_RUNS.search(frame.code):
        sizes = [line for line, name in settings_of(lines, "batch_size") if not _NOT_TRAINING.search(name)]
        if sizes and frame.line not in sizes:
            return culprit_at(frame.file, lines, sizes[0])
    return frame.culprit


def spike(record: RecordLike, ending: Ending) -> Finding | None:
    """One step needed far more memory than all before it.

    What it sees: lack of memory after many good steps on a flat curve, or in a batch far larger than all before it.
    Why it matters: one long sequence or one large matrix ends a run that had been fine for hours.
    May be confused with: a leak, whose curve rises all along; other programs that took the memory.
    How sure: supported after more than 20 steps on a flat curve, or where the batch was seen; else a hypothesis.
    Cure: cap or bucket the lengths, work in chunks.
    """
    found = exhaustion_of(record, ending)
    if found is None or found.shape != "spike":
        return None
    large = large_batch_of(record)
    if large is not None:
        by_length = (
            Cure("cap the length of a sample before it is padded, and look at the long one", "", "changed"),
            Cure("or make batches of samples of like length, by a budget of tokens", "", "equivalent"),
            *next_commands(record),
        )
        culprit = large.padded_by or found.culprit
        return Finding("oversize.spike", found.grade, found.words, found.evidence, culprit, by_length)
    cures = (
        Cure("do that work in chunks, in smaller batches", "", "equivalent"),
        Cure("or cap and bucket the lengths of samples", "", "changed"),
        *next_commands(record),
    )
    what = "the validation" if found.progress.phase == "validation" else "one step"
    claim = f"{what} needed far more than the steps before: {found.words}"
    return Finding("oversize.spike", found.grade, claim, found.evidence, found.culprit, cures)


def prefetch(record: RecordLike, ending: Ending) -> Finding | None:
    """Batches that workers make ahead of the trainer do not fit.

    What it sees: memory that ran out while shared memory held many finished batches, and the workers those in the
    making.
    Why it matters: a loader keeps `num_workers` times `prefetch_factor` batches ready, whatever one of them takes.
    May be confused with: a step that does not fit; workers that copy or cache a dataset; a /dev/shm that is too small.
    How sure: supported when shared memory and the workers' own memory are most of what the run grew by.
    Cure: a smaller prefetch_factor, fewer workers, smaller batches.
    """
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
        Cure("use fewer workers"),
        Cure("smaller batches with gradient accumulation", "", "equivalent"),
    ]
    if ahead > 1:
        cures.insert(0, Cure("make fewer batches ahead", f"prefetch_factor={min(PREFETCH_BY_DEFAULT, ahead - 1)}"))
    return Finding("oversize.prefetch", found.grade, claim, evidence, culprit_on(loader), tuple(cures))


def spawned_workers(record: RecordLike, ending: Ending) -> Finding | None:
    """Workers that are spawned get a copy of the dataset each, and the copies do not fit.

    What it sees: memory that ran out while most looks found the trainer or a new worker sending or reading the dataset,
    as the start methods `spawn` and `forkserver` do for each worker.
    Why it matters: with N workers the dataset is in memory N + 1 times before the first batch.
    May be confused with: forked workers, which share it and copy it page by page; a dataset that alone does not fit; a
    script without `if __name__ == "__main__"`, which loads it anew in each worker.
    How sure: supported, by the looks at what was being done while memory filled.
    Cure: tensors, which are sent through shared memory; a file that each worker opens; forked workers; fewer workers.
    """
    found = exhaustion_of(record, ending)
    if found is None or found.shape != "spawned":
        return None
    loader = loader_with_workers(record)
    workers = loader.num_workers or 0
    each = f"each of {count(workers)} data workers" if workers > 1 else "the data worker"
    claim = f"{each} is sent a copy of the dataset, since it is not forked but started anew: {found.words}"
    cures = (
        Cure("hold the samples in tensors: they go to such workers through shared memory, and not as copies"),
        Cure("or keep only the file's path in the dataset, and open it in the worker"),
        Cure("or fork the workers, where no thread or GPU was used before", 'multiprocessing_context="fork"'),
        Cure("use fewer workers"),
    )
    return Finding("oversize.spawned-workers", found.grade, claim, found.evidence, culprit_on(loader), cures)


RULES = (
    Rule.of("oversize.data", data, ("leak", "oversize.neighbour")),
    Rule.of("oversize.libraries", libraries, ("oversize.neighbour",)),
    Rule.of("oversize.model", model, ("fragmentation", "leak", "oversize.neighbour")),
    Rule.of("oversize.batch", batch, ("fragmentation", "leak", "oversize.neighbour")),
    Rule.of("oversize.spike", spike, ("fragmentation", "leak", "oversize.neighbour")),
    Rule.of("oversize.prefetch", prefetch, ("leak", "oversize.neighbour")),
    Rule.of("oversize.spawned-workers", spawned_workers, ("oversize.neighbour",)),
)
