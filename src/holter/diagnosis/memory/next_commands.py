"""The commands to paste after a run that did not fit: what would fit, and the same run with its batches split."""

from __future__ import annotations

import shlex

from holter.diagnosis.core.rule import RecordLike
from holter.finding import Cure
from holter.record.events.agent import Adapter

_HEALED = {"torch", "keras", "tensorflow"}
_PLANNED = {"torch"}  # a script of Keras's is planned from Python alone


def next_commands(record: RecordLike, *, healed: bool = True) -> tuple[Cure, ...]:
    """Give them for the run's own command; `healed`: what `--heal` does would help, and it was not on already."""
    words = record.facts.words
    used = {one.framework for one in record.of(Adapter) if one.state == "on"}
    if not words:
        return ()
    command = shlex.join(words)
    found = []
    if used & _PLANNED:
        found.append(Cure("see which settings fit, before the next run", f"holter plan -- {command}"))
    if healed and used & _HEALED and not record.facts.heal:
        heal = "or let Holter split what does not fit and add the gradients up"
        found.append(Cure(heal, f"holter run --heal -- {command}", "equivalent"))
    return tuple(found)
