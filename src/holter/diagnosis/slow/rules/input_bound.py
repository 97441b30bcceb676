"""Why the steps wait for their data, one rule for each reason."""

from __future__ import annotations

from dataclasses import replace

from holter.diagnosis.core.rule import RecordLike, Rule
from holter.diagnosis.slow.input_bound import culprit_of, input_finding, input_illness
from holter.finding import Cure, Ending, Finding

_YIELDS_TO = ("thrash", "hang", "cpu.oversubscribed")


def slow_transform(record: RecordLike, _ending: Ending) -> Finding | None:
    """Work on each sample that takes longer than the step itself.

    What it sees: steps that spend 40 % and more of the training waiting for data, while whoever makes the data (the
    trainer itself, its workers, a thread of tf.data) was met computing in a line of the user's.
    Why it matters: the model, and the GPU, stand still while Python decodes and augments.
    May be confused with: toy loops where putting a small batch together takes half of a step of a millisecond; want of
    memory, which makes everything wait; data that come from a slow disk or network, where nobody computes.
    How sure: established when the wait was measured, is most of the step, and the line was met again and again; else
    supported.
    Cure: more workers for the cores that there are, tf.data's parallel map, or the work done once and kept.
    """
    return input_finding(record, "slow-transform", "{who} make{s} samples more slowly than the step takes them{where}")


def no_prefetch(record: RecordLike, _ending: Ending) -> Finding | None:
    """Nobody fetches the next batch while the step computes.

    What it sees: a loader without workers, a generator or a pipeline without prefetch, and steps that spend 40 % and
    more of the training waiting for it, in work that only waits or that would fit beside the step's computing.
    Why it matters: fetching and computing take turns where they could go side by side.
    May be confused with: a transform that takes all of a core for longer than the step, which workers only divide.
    How sure: established when the wait was measured, is most of the step, and the line was met; else supported.
    Cure: workers, or prefetch at the end of the pipeline.
    """
    return input_finding(record, "no-prefetch", "{who} fetch{es} a batch only when the step asks for it{where}")


def slow_disk(record: RecordLike, _ending: Ending) -> Finding | None:
    """Samples that come from a disk slower than the step.

    What it sees: steps that wait for data while whoever reads them was met in reads of files, or the run read much from
    disk and used little CPU.
    Why it matters: many small files, a network mount or a cold cache make each sample wait for the device.
    May be confused with: a transform that computes; a socket; lack of memory, which makes reads come again and again.
    How sure: established when the wait was measured, is most of the step, and the line was met; else supported.
    Cure: more workers, since they only wait; fewer and larger files; a copy on a local disk or in memory.
    """
    found = input_finding(record, "slow-disk", "{who} wait{s} for files to be read{where}")
    if found is None:
        return None
    packed = Cure(
        "read fewer and larger files: pack the samples (HDF5, WebDataset, TFRecord, one .npy)", "", "equivalent"
    )
    return replace(found, cures=(*found.cures[:1], packed))


def slow_network(record: RecordLike, _ending: Ending) -> Finding | None:
    """Samples that come over a network slower than the step.

    What it sees: steps that wait for data while whoever fetches them was met in a socket, TLS or an HTTP or storage
    library.
    Why it matters: a request for each sample costs a round trip, however fast the line.
    May be confused with: a hang in a socket, where nothing comes at all; a network mount, which looks like a disk.
    How sure: established when the wait was measured, is most of the step, and the line was met; else supported.
    Cure: more workers, since they only wait; a copy on a local disk before the run; one request for many samples.
    """
    found = input_finding(record, "slow-network", "{who} wait{s} for answers over the network{where}")
    if found is None:
        return None
    copied = Cure(
        "copy the data to a local disk before the run, or ask for many samples with one request", "", "equivalent"
    )
    return replace(found, cures=(*found.cures[:1], copied))


def workers_restarted(record: RecordLike, _ending: Ending) -> Finding | None:
    """Data workers that are started anew for every short epoch.

    What it sees: a DataLoader with workers that do not persist, workers started again and again that lived for seconds,
    and a trainer that was met starting or ending them, or waiting for their first batch.
    Why it matters: each start imports the script and the libraries anew or copies the process, which takes longer than
    a short epoch.
    May be confused with: the one start at the beginning, which every run pays; a slow transform within the workers.
    How sure: established when the wait was measured, is most of the step, and the line was met; else supported.
    Cure: persistent_workers=True, or longer epochs.
    """
    illness = input_illness(record)
    found = input_finding(record, "workers-restarted", "{begun} workers were started, anew for each of {times} epochs")
    if illness is None or found is None:
        return None
    return replace(found, culprit=culprit_of(replace(illness[1], line=None)))


RULES = (
    Rule.of("input-bound.slow-transform", slow_transform, _YIELDS_TO),
    Rule.of("input-bound.no-prefetch", no_prefetch, _YIELDS_TO),
    Rule.of("input-bound.slow-disk", slow_disk, _YIELDS_TO),
    Rule.of("input-bound.slow-network", slow_network, _YIELDS_TO),
    Rule.of("input-bound.workers-restarted", workers_restarted, _YIELDS_TO),
)
