"""A batch far larger than all before it, in the step that memory ran out in: one long sample, and padding to it."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass

from holter.diagnosis.core.evidence import first_in_sources
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.progress import progress_of
from holter.diagnosis.core.rule import RecordLike
from holter.finding import Culprit
from holter.record.events.agent import Batch, Made
from holter.source.lines import called_name, calls_of, culprit_at, tree_of
from holter.units import count

_FAR_LARGER = 2
_PADS = ("pad_sequence", "pad", "stack", "cat", "zeros", "new_zeros", "full", "new_full")
_NAMED = 8  # samples


@dataclass(frozen=True)
class LargeBatch:
    """Its shape, the largest one before it, its samples in the dataset, and the user's line that pads."""

    shape: tuple[int, ...]
    before: tuple[int, ...]
    samples: tuple[int, ...]
    padded_by: Culprit | None

    @property
    def words(self) -> str:
        """Say it as a sentence's beginning."""
        of = ""
        if self.samples:
            some = ", ".join(str(one) for one in self.samples[:_NAMED])
            of = f" (samples {some}{', …' if len(self.samples) > _NAMED else ''} of the dataset)"
        return f"one batch is {_shape(self.shape)}{of}, and the largest before it was {_shape(self.before)}"


@once
def large_batch_of(record: RecordLike) -> LargeBatch | None:
    """Give the batch of the step that the run was in last, where it is far larger than those before."""
    progress = progress_of(record)
    batches = [event for event in record.of(Batch) if event.pid == progress.pid and event.shapes]
    if len(batches) < 2 or (batches[-1].step or 0) <= (progress.step or 0):
        return None
    shapes = [event.shapes[0][0] for event in batches]
    before = max(shapes[:-1], key=math.prod)
    if math.prod(shapes[-1]) < _FAR_LARGER * math.prod(before):
        return None
    return LargeBatch(shapes[-1], before, batches[-1].samples, _padded_by(record, progress.pid))


def _padded_by(record: RecordLike, pid: int | None) -> Culprit | None:
    """Give the line that makes one tensor of all samples: of the user's own collate function, or of a pipeline."""
    for event in record.of(Made):
        if event.what == "loader" and event.pid == pid and event.collate_file and event.collate_line:
            lines = record.source(event.collate_file)
            tree = tree_of(lines)
            for node in ast.walk(tree) if tree is not None else ():
                if isinstance(node, (ast.FunctionDef, ast.Lambda)) and node.lineno == event.collate_line:
                    calls = [one for one in ast.walk(node) if isinstance(one, ast.Call) and called_name(one) in _PADS]
                    line = min((one.lineno for one in calls), default=node.lineno)
                    return culprit_at(event.collate_file, lines, line)
    return first_in_sources(record, _pads_in_pipeline)


def _pads_in_pipeline(lines: list[str]) -> int | None:
    return next((line for line, _ in calls_of(lines, ("padded_batch", "pad_sequences"))), None)


def _shape(shape: tuple[int, ...]) -> str:
    return " × ".join(count(size) for size in shape)
