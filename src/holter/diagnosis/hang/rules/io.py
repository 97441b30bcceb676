"""A read or write that does not come back.

What it sees: a hung run in uninterruptible sleep (state D), or blocked in a file, a pipe or a socket.
Why it matters: a network mount or a server that is gone stops the training without an error.
May be confused with: slow storage, where bytes still move; a wait for another process of the run.
How sure: established by the state or the frames; a hypothesis where only the code on the line says so.
Cure: the path or the server; a timeout on the request.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.hang.blocking import blocked_in
from holter.finding import Cure, Ending, Finding

CAUSE = "hang.io"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the read or write that the run waits in."""
    found = blocked_in(record, ending)
    if found is None or found.detail != "io":
        return None
    cures = (Cure("check the file, mount or server on that line; give the call a timeout"),)
    return Finding(CAUSE, found.grade, found.claim, found.evidence, found.culprit, cures)
