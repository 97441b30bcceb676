"""An error was caught or lost, and the run ended with exit code 0.

What it sees: exit code 0, fewer steps than planned, and a traceback that went by in the output or in the trainer.
Why it matters: scripts and schedulers take the run for a success.
May be confused with: a handled error of no consequence in a run that did all of its steps.
How sure: established when the trainer itself died of it; supported when it was only seen to go by.
Cure: let it through: no bare `except`, `set -o pipefail` in a pipe.
"""

from __future__ import annotations

from holter.diagnosis.core.frames import short_path
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.raised import culprit_frame
from holter.diagnosis.ending.shortfall import shortfall_of
from holter.diagnosis.ending.tracebacks import Raised
from holter.finding import Culprit, Cure, Ending, Evidence, Finding, Grade
from holter.record.events.agent import UncaughtException
from holter.source.lines import culprit_at, handler_around

CAUSE = "early-stop.swallowed-error"
YIELDS_TO = ("early-stop.input-exhausted", "disk-full", "resource", "oversize", "leak")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the error that went by, and its line."""
    found = shortfall_of(record) if ending.kind == "stopped-early" else None
    if found is None or found.raised is None:
        return None
    root, frame = found.raised.root, culprit_frame(found.raised)
    at = f" at {frame.short}" if frame is not None else ""
    after = f" after {found.words}" if found.words else ""
    grade: Grade = "established" if found.raised.pid is not None else "supported"
    claim = f"an error{at} was raised{after}, but the command still ended with exit code 0: {root.headline}"
    evidence = [Evidence("error", root.headline, root.when)]
    if found.words:
        evidence.append(Evidence("steps", found.words))
    # The trainer itself died of it: then it was the shell around it that lost the exit code.
    died = any(event.pid == found.raised.pid for event in record.of(UncaughtException))
    caught = _swallowed_at(record, found.raised)
    where = f" at line {caught.line}" if caught is not None else ""
    cure = f"re-raise it{where} after logging, and catch only what you expect"
    if caught is not None and not died:
        evidence.append(Evidence("caught", f"{short_path(caught.file)}:{caught.line} {caught.code}"))
    if died:
        cure = "set -o pipefail in the shell, so that the error's exit code counts"
    cures = (Cure(cure),)
    return Finding(CAUSE, grade, claim, tuple(evidence), frame.culprit if frame else None, cures)


def _swallowed_at(record: RecordLike, raised: Raised) -> Culprit | None:
    """Find the `except` that the error ended in: the innermost around any of the user's lines that it came through."""
    for one in (raised.root, raised):
        for frame in reversed([frame for frame in one.frames if frame.user]):
            lines = record.source(frame.file)
            line = handler_around(lines, frame.line)
            if line is not None:
                return culprit_at(frame.file, lines, line)
    return None
