"""An ordinary exception of the user's program.

What it sees: a non-zero exit with an uncaught exception, from the agent's event or the traceback in the output.
Why it matters: the last user line of a long traceback is what has to change, and it is rarely the last line.
May be confused with: exceptions that only report another illness (no space, no memory, a dead worker); where one
of those is found, this finding gives way to it.
How sure: established, since the exception itself says so.
Cure: what the library's own message says to do where it is known; else the line.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import exit_of
from holter.diagnosis.ending.library_messages import cures_of
from holter.diagnosis.ending.raised import culprit_frame, message_of, raised_at_end
from holter.diagnosis.memory.exhaustion import exhaustion_of
from holter.finding import Cure, Ending, Evidence, Finding

CAUSE = "user-error"
YIELDS_TO = ("disk-full", "resource", "oversize", "nan", "device-lost", "hang", "fragmentation", "external",
             "native-crash")  # fmt: skip


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the exception and the user's line it came from."""
    if ending.kind != "exception" or exit_of(record) is None:
        return None
    raised = raised_at_end(record)
    if raised is None or exhaustion_of(record, ending) is not None:
        return None  # where memory ran out, what was raised is only how it showed
    frame, root = culprit_frame(raised), raised.root
    claim = f"{root.headline}" + (f" (at {frame.short})" if frame is not None else "")
    evidence = [Evidence("exception", root.headline, root.when or raised.when)]
    if root is not raised:
        claim += f"; it came up as {raised.headline}"
        evidence.append(Evidence("which led to", raised.headline, raised.when))
    plain = Cure(f"correct {frame.short}" if frame is not None else "see the traceback in the output")
    cures = cures_of(message_of(raised)) or (plain,)
    return Finding(CAUSE, "established", claim, tuple(evidence), frame.culprit if frame else None, cures)
