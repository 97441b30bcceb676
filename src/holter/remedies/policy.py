"""Whether a run that ended is started again, and with which change: a pure function of its verdict.

Never: a run that is complete, that the user or its scheduler ended, that stopped early, or that ended with an error of
its own. Nor is one that crashed in compiled code: nothing is known that would keep it from crashing there again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from holter.finding import Finding, Verdict
from holter.remedies import afresh, no_workers, split
from holter.remedies.ledger import DOOMED_AFTER, Ledger
from holter.remedies.remedy import Prescribe, Remedy

_TABLE: dict[str, Prescribe] = {
    cause: module.prescribe for module in (no_workers, split, afresh) for cause in module.CAUSES
}
# What asks a program to end is a wish; SIGKILL alone comes from nobody who could have asked.
_NOT_A_WISH = ("SIGKILL",)
_FOR_MEMORY = ("oversize", "leak", "fragmentation", "resource")


@dataclass(frozen=True)
class Ruling:
    """What is to be done after an attempt: a remedy, or why not; neither where none was ever in question."""

    remedy: Remedy | None = None
    cause: str = ""
    declined: str = ""
    doomed: bool = False


def rule_on(verdict: Verdict, ledger: Ledger, *, resumes: bool) -> Ruling:
    """Say what the next attempt is to change; `resumes` says that there is a state to go on from."""
    if not _in_question(verdict):
        return Ruling()
    if ledger.doomed:
        return Ruling(cause=_root(verdict), declined=_in_vain(ledger), doomed=True)
    finding = _treatable(verdict)
    if finding is None:
        return Ruling(cause=_root(verdict), declined=f"no change is known that would cure {_root(verdict)}")
    prescribe = _TABLE.get(finding.cause) or _TABLE[finding.family]
    first = prescribe(0)
    remedy = prescribe(ledger.tried(first.name)) if first is not None else None
    if remedy is None:
        return Ruling(cause=finding.cause, declined=f"what is known to cure {finding.cause} was tried: {_list(ledger)}")
    because = _not_heeded(verdict, remedy)
    if because:
        return Ruling(cause=finding.cause, declined=because)
    if not resumes and not remedy.from_start:
        return Ruling(cause=finding.cause, declined=_no_state(finding))
    return Ruling(remedy, finding.cause)


def _in_question(verdict: Verdict) -> bool:
    kind, first = verdict.ending.kind, next(iter(verdict.findings), None)
    if kind in ("oom-killed", "crashed", "hung"):
        return True
    if kind == "killed":
        asked = first is not None and first.cause == "external.signal" and first.grade == "established"
        return verdict.ending.signal in _NOT_A_WISH and not asked
    # An exception is the script's own affair, unless it says that memory ran out.
    return kind == "exception" and first is not None and first.family in _FOR_MEMORY and first.grade != "hypothesis"


def _treatable(verdict: Verdict) -> Finding | None:
    """The root cause, where there is a remedy for it; what merely followed from it is not treated instead."""
    first = next(iter(verdict.findings), None)
    if first is None or first.family == "native-crash":
        return None
    return first if first.cause in _TABLE or first.family in _TABLE else None


def _not_heeded(verdict: Verdict, remedy: Remedy) -> str:
    """Why a change would come to nothing in this run."""
    frameworks = set(verdict.run.get("frameworks") or ())
    if remedy.read_by and not frameworks & set(remedy.read_by):
        return f"this would help: {remedy.text}; it is known how for {' and '.join(remedy.read_by)} alone"
    # An exception went through the reflex that splits in place, and that one has told why it could not.
    if remedy.name == "split" and verdict.ending.kind == "exception" and "keras" not in frameworks:
        return "the batch was split in place as far as it can be, and no other change is known"
    return ""


def _root(verdict: Verdict) -> str:
    return verdict.findings[0].cause if verdict.findings else f"a run that {verdict.ending.kind}"


def _no_state(finding: Finding) -> str:
    return (
        f"{finding.cause} needs a state to go on from, and the script writes none that is known: wrap its loops in "
        "holter.resumable(...), or say how it resumes with --resume-args"
    )


def _in_vain(ledger: Ledger) -> str:
    at = f"step {ledger.furthest.step:,}" if ledger.furthest.step else "the beginning"
    return f"{DOOMED_AFTER} restarts in a row came no further than {at}; tried: {_list(ledger)}"


def _list(ledger: Ledger) -> str:
    """What was tried, each once."""
    counted = Counter(remedy.text for remedy in ledger.changes)
    return "; ".join(f"{text} ({times} times)" if times > 1 else text for text, times in counted.items()) or "nothing"
