"""Samples that come from a disk slower than the step.

What it sees: steps that wait for data while whoever reads them was met in reads of files, or the run read much from
disk and used little CPU.
Why it matters: many small files, a network mount or a cold cache make each sample wait for the device.
May be confused with: a transform that computes; a socket; lack of memory, which makes reads come again and again.
How sure: established when the wait was measured, is most of the step, and the line was met; else supported.
Cure: more workers, since they only wait; fewer and larger files; a copy on a local disk or in memory.
"""

from __future__ import annotations

from dataclasses import replace

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.input_bound import input_finding
from holter.finding import Cure, Ending, Finding

CAUSE = "input-bound.slow-disk"
YIELDS_TO = ("thrash", "hang", "cpu.oversubscribed")


def examine(record: RecordLike, ending: Ending) -> Finding | None:  # noqa: ARG001 - the shape of a rule
    """Name the line that reads the files."""
    found = input_finding(record, "slow-disk", "{who} wait{s} for files to be read{where}")
    if found is None:
        return None
    packed = Cure(
        "read fewer and larger files: pack the samples (HDF5, WebDataset, TFRecord, one .npy)", "", "equivalent"
    )
    return replace(found, cures=(*found.cures[:1], packed))
