"""Data workers each grow a copy of a dataset of Python objects.

What it sees: the private memory of forked workers grows while their size stands still: pages that were shared with
the trainer are copied when the reference counts on them are written.
Why it matters: with N workers the dataset comes to be in memory N + 1 times, an epoch into the run.
May be confused with: a cache that each worker fills, whose own size grows; batches on their way through shared memory.
How sure: established when the copied pages are most of the measured growth; supported when they are a good part of it.
Cure: hold the samples in arrays or tensors instead of Python objects; fewer workers.
"""

from __future__ import annotations

import ast

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.leak.cause import leak_cause
from holter.diagnosis.leak.retained_line import line_of, made_line
from holter.finding import Culprit, Cure, Ending, Finding
from holter.source.edits import imported_names, replaced
from holter.source.lines import tree_of
from holter.units import count, size

CAUSE = "leak.worker-copy"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say by how much the workers grew, and which objects they copy."""
    found = leak_cause(record, ending)
    if found is None or found.cause != CAUSE or found.pages is None:
        return None
    pages, objects = found.pages, found.pages.objects
    culprit = None
    what, how = "the dataset's Python objects", ""
    if objects is not None:
        what = f"{objects.where} ({count(objects.length)} Python objects)"
        culprit = made_line(record, objects) or line_of(record, objects)[0]
        if culprit is not None and objects.element in ("int", "float", "str"):
            how = _as_array(record.source(culprit.file), culprit)
    workers = f"{pages.workers} data workers" if pages.workers > 1 else "the data worker"
    claim = f"{workers} copied {size(pages.grown)} of memory that they shared with the trainer by reading {what}"
    cures = (
        Cure(
            "hold the samples in arrays or tensors, one for each field: there are no reference counts in them",
            how,
            "equivalent",
        ),
        Cure("use fewer workers", "", "equivalent"),
    )
    return Finding(CAUSE, found.grade, f"{claim}: {found.words}", found.evidence, culprit, cures, found.forecast)


def _as_array(lines: list[str], made: Culprit) -> str:
    """Write the line that makes the list with an array made of it."""
    tree = tree_of(lines)
    for node in ast.walk(tree) if tree is not None and "np" in imported_names(lines) else ():
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and node.lineno == made.line:
            return replaced(lines, node.value, f"np.array({ast.unparse(node.value)})")
    return ""
