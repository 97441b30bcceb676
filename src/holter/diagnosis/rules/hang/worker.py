"""A data worker that died or is stuck.

What it sees: a hung run whose trainer waits in its DataLoader, and what its workers stand in, or that one is gone.
Why it matters: the trainer's own stack shows only the loader; the cause is a line of the dataset, in another process.
May be confused with: a slow worker, which makes steps rare but still makes them; a deadlock in the trainer itself.
How sure: established when the worker's own line was read and nothing moved; a hypothesis when the workers could
not be read.
Cure: the worker's line; the spawn start method where a fork copied a held lock.
"""

from __future__ import annotations

from holter.diagnosis.blocking import blocked_in
from holter.diagnosis.rule import RecordLike
from holter.finding import Cure, Ending, Finding

CAUSE = "hang.worker"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the worker and the line of the user's that it stands on."""
    found = blocked_in(record, ending)
    if found is None or found.detail != "worker":
        return None
    at = f" at {found.line.short}" if found.line is not None else ""
    claim = f"the process{at} {found.words}"
    line = found.worker.user_frames[0] if found.worker is not None else found.line
    cures = (
        Cure(
            "the worker's own line" if found.worker is not None else "num_workers=0 shows the worker's error",
            "",
            "exact",
        ),
        Cure("DataLoader(timeout=60): an error instead of a wait without end", "", "exact"),
        Cure("multiprocessing_context='spawn'", "a fork copies locks that other threads hold", "exact"),
    )
    culprit = line.culprit if line is not None else None
    return Finding(CAUSE, found.grade, claim, found.evidence, culprit, cures)
