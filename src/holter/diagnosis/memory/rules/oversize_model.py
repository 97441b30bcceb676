"""The model and its optimizer alone do not fit.

What it sees: lack of memory before the first step, after a model was made or on the device.
Why it matters: no batch size helps.
May be confused with: a dataset that is loaded whole before the first step; a first batch that is too large.
How sure: a hypothesis, or supported where a single allocation asked for more than the limit.
Cure: lower precision, another optimizer, sharding.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.exhaustion import exhaustion_of
from holter.diagnosis.memory.next_commands import next_commands
from holter.finding import Cure, Ending, Finding

CAUSE = "oversize.model"
YIELDS_TO = ("fragmentation", "leak", "oversize.neighbour")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say what was reached before the first step."""
    found = exhaustion_of(record, ending)
    if found is None or found.shape != "model":
        return None
    cures = (
        Cure("load in bfloat16, or a smaller model", "", "changed"),
        Cure("an optimizer with less state (SGD, Adafactor, 8-bit Adam)", "", "changed"),
        Cure("shard it (FSDP, ZeRO)", "", "equivalent"),
        *next_commands(record, healed=False),
    )
    culprit = found.frame.culprit if found.frame is not None else None
    return Finding(CAUSE, found.grade, f"the model may not fit: {found.words}", found.evidence, culprit, cures)
