"""A process that the run started took more memory than there was; the run outlived it.

What it sees: the kernel's OOM killer struck a process of the tree that is not the trainer, and the run went on.
Why it matters: what that process was to do (a preprocessing, a download, an upload) is missing, and nothing says so.
May be confused with: another program of the same container; a data worker, whose loss ends the run.
How sure: established when the victim was seen in the run's own tree; else a hypothesis.
Cure: do less at once in that process, or do it before the training.
"""

from __future__ import annotations

from holter.diagnosis.core.evidence import tree_pids
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import exit_of
from holter.diagnosis.ending.oom_killer import oom_evidence, oom_kill_of
from holter.diagnosis.memory.memory import memory_curve
from holter.finding import Cure, Ending, Finding, Grade
from holter.units import size

CAUSE = "oversize.helper"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the process that was killed, and what it held."""
    kill = None if ending.kind == "oom-killed" else oom_kill_of(record, exit_of(record))
    if kill is None or kill.role == "trainer":
        return None
    grade: Grade = "established" if kill.pid in tree_pids(record) else "hypothesis"
    curve = memory_curve(record)
    limit = f"; {curve.limit_words} is {size(curve.limit)}" if curve is not None and curve.limit else ""
    claim = f"the kernel killed {kill.who}: out of memory; and the run went on without it{limit}"
    cures = (Cure("have that process work in smaller pieces, or run it before the training"),)
    return Finding(CAUSE, grade, claim, oom_evidence(record, kill), None, cures)
