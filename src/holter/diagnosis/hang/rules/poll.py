"""A loop that sleeps and looks again for something that does not come.

What it sees: a hung run whose main thread is in a sleep at both looks, on the same line, with no CPU used.
Why it matters: what it looks for (a file, a lock file, a port, a flag) is not coming, and nothing says so.
May be confused with: a pause that is meant, as a pause for validation or for a rate limit, which ends.
How sure: supported: the sleep is seen; that it would never end is known only from how long it took before.
Cure: the condition of that loop; a limit of tries.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.hang.blocking import blocked_in
from holter.finding import Cure, Ending, Finding

CAUSE = "hang.poll"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the line that sleeps."""
    found = blocked_in(record, ending)
    if found is None or found.detail != "poll":
        return None
    cures = (Cure("see what that loop waits for; let it give up with an error after some tries"),)
    return Finding(CAUSE, found.grade, found.claim, found.evidence, found.culprit, cures)
