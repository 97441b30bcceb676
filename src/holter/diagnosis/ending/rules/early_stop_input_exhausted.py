"""The input ran out before the planned steps were done.

What it sees: exit code 0 and fewer steps than planned, with the framework's warning that the input ran out; or
epochs that went by without a step, since a generator is empty after its first pass.
Why it matters: the run looks finished and the model was trained on a fraction of the plan.
May be confused with: early stopping on purpose; the same warning in a run that did all of its steps.
How sure: established where the warning and the counts agree, or where the script shows what can be read only once.
Cure: `.repeat()` on the dataset, or the true number of steps per epoch.
"""

from __future__ import annotations

from holter.diagnosis.core.evidence import user_files
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.one_shot import read_once
from holter.diagnosis.ending.shortfall import Shortfall, shortfall_of
from holter.finding import Culprit, Cure, Ending, Evidence, Finding, Grade
from holter.source.lines import calls_of, culprit_at, settings_of

CAUSE = "early-stop.input-exhausted"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the counts and quote the warning."""
    found = shortfall_of(record) if ending.kind == "stopped-early" else None
    if found is not None and found.dry:
        return _read_once(record, found)
    if found is None or not found.warning:
        return None
    evidence = (Evidence("steps", found.words), Evidence("warning", found.warning))
    cures = (Cure("dataset.repeat() before fit, or leave steps_per_epoch out so that it is counted", "", "equivalent"),)
    claim = f"the input ran out after {found.words}, and the framework only warned"
    return Finding(CAUSE, "established", claim, evidence, _asked_for(record), cures)


def _read_once(record: RecordLike, found: Shortfall) -> Finding:
    """Input that was empty after its first pass, such as a generator: the later epochs trained on nothing."""
    culprit = None
    for file in user_files(record):
        line = read_once(record.source(file))
        if line is not None:
            culprit = culprit_at(file, record.source(file), line)
            break
    claim = f"the input can be read only once, and was empty from then on: {found.words}"
    cure = Cure("make the iterator anew in each epoch, or keep the data in a Dataset or a list", "", "changed")
    grade: Grade = "established" if culprit is not None else "supported"
    return Finding(CAUSE, grade, claim, (Evidence("steps", found.words),), culprit, (cure,))


def _asked_for(record: RecordLike) -> Culprit | None:
    """Find the line that promises more steps than the input has, in a script with just one such line."""
    for file in user_files(record):
        lines = record.source(file)
        promised = [line for line, name in settings_of(lines, "steps_per_epoch") if name == "steps_per_epoch"]
        trained = [line for line, _ in calls_of(lines, ("fit",))]
        for found in (promised, trained):
            if len(found) == 1:
                return culprit_at(file, lines, found[0])
    return None
