"""Data workers each grow a copy of a dataset of Python objects.

What it sees: the run's memory grows while no process of it gets larger, or the private memory of forked workers grows
while their size stands still: pages that were shared with the trainer are copied when the reference counts on them are
written.
Why it matters: with N workers the dataset comes to be in memory N + 1 times, within seconds or an epoch into the run.
May be confused with: a cache that each worker fills, whose own size grows; batches on their way through shared memory;
workers that are spawned and not forked, each of which gets a copy at its start.
How sure: established when the workers' own private memory shows most of it; supported when only the sum over the run
does; a hypothesis where it takes much of the memory and the run came to its end all the same.
Cure: hold the samples in arrays or tensors instead of Python objects; fewer workers.
"""

from __future__ import annotations

import ast
import re

from holter.diagnosis.core.evidence import loader_with_workers
from holter.diagnosis.core.frames import Frame, culprit_on
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.leak.cause import leak_cause
from holter.diagnosis.leak.retained_line import line_of, made_line
from holter.diagnosis.memory.memory_looks import gathered_by
from holter.diagnosis.memory.worker_pages import WorkerPages
from holter.finding import Culprit, Cure, Ending, Evidence, Finding
from holter.source.edits import imported_names, replaced
from holter.source.lines import tree_of
from holter.units import count, size

CAUSE = "leak.worker-copy"

# What begins empty is filled elsewhere.
_EMPTY = re.compile(r"=\s*(?:\[\]|\{\}|\w+\(\))\s*(?:#.*)?$|\.empty\(")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say how much the workers copied, and which objects they read."""
    found = leak_cause(record, ending)
    if found is None or found.cause != CAUSE or found.pages is None:
        return None
    pages = found.pages
    what = "by reading the dataset's Python objects"
    if pages.held is not None:
        objects = f"reading {pages.held.where} ({count(pages.held.length)} Python objects)"
        what = f"by writing to {pages.held.where}" if pages.written else f"by {objects}"
    workers = f"{pages.workers} data workers" if pages.workers > 1 else "the data worker"
    claim = f"{workers} copied {size(pages.grown)} of memory that they shared with the trainer {what}"
    culprit = _line(record, pages)
    evidence = (*found.evidence, *_measured(pages))
    return Finding(
        CAUSE, found.grade, f"{claim}: {found.words}", evidence, culprit, _cures(record, culprit, pages), found.forecast
    )


def _line(record: RecordLike, pages: WorkerPages) -> Culprit | None:
    """The line that fills what they read; where nobody could look at it, the one that filled memory before the fork."""
    if pages.held is not None:
        made, filled = made_line(record, pages.held), line_of(record, pages.held)[0]
        known = (filled or made) if made is None or _EMPTY.search(made.code) else made
        if known is not None:
            return known
    gathered: Frame | None = gathered_by(record, None, pages.since or float("inf"))
    if gathered is not None:
        return gathered.culprit
    return culprit_on(loader_with_workers(record))


def _measured(pages: WorkerPages) -> tuple[Evidence, ...]:
    beyond = Evidence("copied pages", f"{size(pages.grown)} more in the run than its processes grew by")
    own = Evidence("private memory", f"{size(pages.proved)} of the workers' own that their size does not explain")
    return (beyond, own) if pages.proved and pages.grown > pages.proved else (own,) if pages.proved else (beyond,)


def _cures(record: RecordLike, culprit: Culprit | None, pages: WorkerPages) -> tuple[Cure, ...]:
    fewer = Cure("use fewer workers", "", "equivalent")
    if pages.written:
        return Cure("change a copy of the sample, and not the dataset itself: .copy() or .clone() first"), fewer
    how = ""
    flat = pages.held is not None and pages.held.element in ("int", "float", "str") and pages.held.type == "list"
    if culprit is not None and flat:
        how = _as_array(record.source(culprit.file), culprit)
    title = "hold the samples in arrays or tensors, one for each field: there are no reference counts in them"
    return Cure(title, how, "equivalent"), fewer


def _as_array(lines: list[str], made: Culprit) -> str:
    """Write the line that makes the list with an array made of it."""
    tree = tree_of(lines)
    for node in ast.walk(tree) if tree is not None and "np" in imported_names(lines) else ():
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and node.lineno == made.line:
            return replaced(lines, node.value, f"np.array({ast.unparse(node.value)})")
    return ""
