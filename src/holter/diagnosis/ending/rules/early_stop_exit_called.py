"""The user's own code called for the exit before the plan was done.

What it sees: exit code 0, fewer steps than planned, and the line that called sys.exit or os._exit.
Why it matters: a guard such as "stop if the loss is bad" ends a night's run and nothing says so.
May be confused with: the ordinary sys.exit(main()) at the end of a run that did all of its steps.
How sure: supported: the line is known, whether it was meant is not.
Cure: that line: a message and a non-zero code.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.shortfall import shortfall_of
from holter.finding import Cure, Ending, Evidence, Finding

CAUSE = "early-stop.exit-called"
YIELDS_TO = ("early-stop.input-exhausted", "early-stop.swallowed-error")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the line that called for the exit."""
    found = shortfall_of(record) if ending.kind == "stopped-early" else None
    if found is None or found.exit_line is None:
        return None
    line = found.exit_line
    claim = f"the script itself called exit at {line.short}, with exit code 0: {found.did}"
    evidence = (Evidence("exit", f"{line.short} in {line.function or '?'}"),)
    cures = (Cure("if you did not want that: print the reason there, and exit with another code than 0"),)
    return Finding(CAUSE, "supported", claim, evidence, line.culprit, cures)
