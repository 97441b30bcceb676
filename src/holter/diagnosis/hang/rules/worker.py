"""A data worker that died or is stuck.

What it sees: a hung run whose trainer waits in its DataLoader, and what its workers stand in, or that one is gone.
Why it matters: the trainer's own stack shows only the loader; the cause is a line of the dataset, in another process.
May be confused with: a slow worker, which makes steps rare but still makes them; a deadlock in the trainer itself.
How sure: established when the worker's own line was read and nothing moved; a hypothesis when the workers could
not be read.
Cure: the worker's line; the spawn start method where a fork copied a held lock.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.hang.blocking import blocked_in
from holter.finding import Cure, Ending, Finding

CAUSE = "hang.worker"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the worker and the line of the user's that it stands on."""
    found = blocked_in(record, ending)
    if found is None or found.detail != "worker":
        return None
    stuck = found.worker
    culprit = (stuck.user_frames or stuck.frames)[0].culprit if stuck is not None else found.culprit
    if stuck is not None:
        limit = "; DataLoader(timeout=60) turns such a wait into an error" if len(stuck.frames) > 1 else ""
        cure = Cure(f"see why it does not go on from that line{limit}")
    else:
        cure = Cure("num_workers=0 for one run: what a worker hides then shows itself", "", "exact")
    return Finding(CAUSE, found.grade, found.claim, found.evidence, culprit, (cure,))
