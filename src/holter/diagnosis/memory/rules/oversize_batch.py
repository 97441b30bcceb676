"""One step needs more memory than there is.

What it sees: lack of memory within the first steps.
Why it matters: the run never had a chance at this batch size.
May be confused with: a model that does not fit even before the first step; a leak, which takes many steps.
How sure: supported when a step or two had been done or the allocator said what it was asked for; else a hypothesis.
Cure: smaller micro-batches with accumulation, mixed precision, activation checkpointing.
"""

from __future__ import annotations

import re

from holter.diagnosis.core.frames import Frame
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.exhaustion import exhaustion_of
from holter.diagnosis.memory.next_commands import next_commands
from holter.finding import Culprit, Cure, Ending, Finding
from holter.source.lines import culprit_at, settings_of

CAUSE = "oversize.batch"
YIELDS_TO = ("fragmentation", "leak", "oversize.neighbour")

_TRAINER_RUNS = re.compile(r"\.(?:fit|train)\(")
_NOT_TRAINING = re.compile(r"eval|val|test|predict", re.IGNORECASE)


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say in which step memory ran out, and how much there was."""
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
    return Finding(CAUSE, found.grade, f"one step does not fit: {found.words}", found.evidence, culprit, cures)


def _line_to_change(record: RecordLike, frame: Frame) -> Culprit:
    """Name the batch's size where a trainer runs the loop: the line that starts it says nothing of the size."""
    lines = record.source(frame.file)
    if _TRAINER_RUNS.search(frame.code):
        sizes = [line for line, name in settings_of(lines, "batch_size") if not _NOT_TRAINING.search(name)]
        if sizes and frame.line not in sizes:
            return culprit_at(frame.file, lines, sizes[0])
    return frame.culprit
