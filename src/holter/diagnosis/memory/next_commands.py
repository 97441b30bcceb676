"""The commands to paste after a run that did not fit: what would fit, and the same run with its batches split."""

from __future__ import annotations

from holter.diagnosis.core.evidence import frameworks_on
from holter.diagnosis.core.rule import RecordLike
from holter.finding import Cure
from holter.record.events.looks import FitInput

_PLANNED = {"torch"}  # a script of Keras's is planned from Python alone


def next_commands(record: RecordLike, *, healed: bool = True) -> tuple[Cure, ...]:
    """Give them for the run's own command; `healed`: what `--heal` does would help, and it was not on already."""
    if not record.facts.words:
        return ()
    used = frameworks_on(record)
    found = []
    if used & _PLANNED:
        found.append(Cure("see which settings fit, before the next run", "holter plan -- COMMAND"))
    # Of Keras only a `fit` is run in chunks; a loop with a tape is left alone.
    if healed and ("torch" in used or record.of(FitInput)) and not record.facts.heal:
        heal = "or let Holter split what does not fit and add the gradients up"
        found.append(Cure(heal, "holter run --heal -- COMMAND", "equivalent"))
    return tuple(found)
