"""Whether a run that ended is started again, and with which change: a pure function of its verdict.

Only one whose ending says that memory ran out (`memory_ending`), or one that hangs where `--on-hang restart` was said.
Never: a run that is complete, that anybody sent a signal to, that left by its own `sys.exit`, that stopped early, or
that ended with an error of its own. Nor is one that crashed in compiled code: nothing is known that would keep it from
crashing there again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from holter.finding import Finding, Verdict
from holter.remedies import afresh, no_workers, split, whole_blocks
from holter.remedies.ledger import DOOMED_AFTER, Ledger
from holter.remedies.memory_ending import ran_out
from holter.remedies.remedy import Prescribe, Remedy

_TABLE: dict[str, Prescribe] = {
    cause: module.prescribe for module in (no_workers, split, whole_blocks, afresh) for cause in module.CAUSES
}


@dataclass(frozen=True)
class Ruling:
    """What is to be done after an attempt: a remedy, or why not; neither where none was ever in question."""

    remedy: Remedy | None = None
    cause: str = ""
    declined: str = ""
    doomed: bool = False


def rule_on(verdict: Verdict, ledger: Ledger, *, resumes: bool, said_so: bool = False, saved: bool = False) -> Ruling:
    """Say what the next attempt is to change.

    `resumes`: there is a state to go on from. `said_so`: the exception that ended the run says that memory ran out.
    `saved`: the script has written checkpoints of its own.
    """
    if verdict.ending.kind == "crashed" and not ran_out(verdict, said_so):
        return Ruling(cause=_root(verdict), declined=f"Holter knows no change that cures {_root(verdict)}")
    if verdict.ending.kind != "hung" and not ran_out(verdict, said_so):
        return Ruling()
    if ledger.doomed:
        return Ruling(cause=_root(verdict), declined=_in_vain(ledger), doomed=True)
    finding = _treatable(verdict)
    if finding is None:
        return Ruling(cause=_root(verdict), declined=f"Holter knows no change that cures {_root(verdict)}")
    prescribe = _TABLE.get(finding.cause) or _TABLE[finding.family]
    first = prescribe(0)
    remedy = prescribe(ledger.tried(first.name)) if first is not None else None
    if remedy is None:
        return Ruling(
            cause=finding.cause, declined=f"all that Holter knows against {finding.cause} was tried: {_list(ledger)}"
        )
    because = _not_heeded(verdict, remedy)
    if because and resumes and verdict.ending.kind == "oom-killed":
        return Ruling(afresh.prescribe(0), finding.cause)  # from its state it comes further, or the ledger ends it
    because = because or _not_split(verdict, remedy, ledger, saved and not resumes)
    if because:
        return Ruling(cause=finding.cause, declined=because)
    if not resumes and not remedy.from_start:
        return Ruling(cause=finding.cause, declined=_no_state(finding))
    return Ruling(remedy, finding.cause)


def _treatable(verdict: Verdict) -> Finding | None:
    """The root cause, where there is a remedy for it; what merely followed from it is not treated instead."""
    first = next(iter(verdict.findings), None)
    return first if first is not None and (first.cause in _TABLE or first.family in _TABLE) else None


def _not_heeded(verdict: Verdict, remedy: Remedy) -> str:
    """Why a change would come to nothing in this run."""
    frameworks = _frameworks(verdict)
    if remedy.read_by and not frameworks & set(remedy.read_by):
        return f"this would help: {remedy.text}; that is only possible for {' and '.join(remedy.read_by)}"
    return ""


def _not_split(verdict: Verdict, remedy: Remedy, ledger: Ledger, would_overwrite: bool) -> str:
    """Why a PyTorch run is not split from its first step on.

    A forward that fails is split in place at once. So an error was of a backward in a graph of the script's own, or of
    a loss: both are made in chunks by a run that is split from its first step on. What fails even then is neither.
    """
    if remedy.name != "split" or "keras" in _frameworks(verdict):
        return ""
    with_error, tried = verdict.ending.kind == "exception", ledger.tried("split") > 0
    declined = [act["because"] for act in verdict.interventions if act["act"] == "split-batch" and not act["done"]]
    if declined and (with_error or tried):
        return f"the batch can't be run in chunks: {declined[-1]}"
    if not with_error:
        return ""
    if tried:
        return "model and loss were run in chunks as small as they go: what does not fit is outside of them"
    if would_overwrite:
        return (
            f"this would help: {remedy.text}; but the script has written checkpoints, and a restart would overwrite "
            "them. Say how it resumes with --resume-args"
        )
    return ""


def _frameworks(verdict: Verdict) -> set[str]:
    return set(verdict.run.get("frameworks") or ())


def _root(verdict: Verdict) -> str:
    return verdict.findings[0].cause if verdict.findings else f"a run that {verdict.ending.kind}"


def _no_state(finding: Finding) -> str:
    return (
        f"{finding.cause} needs a saved state, and Holter found none. Wrap the loops in "
        "holter.resumable(...), or say how it resumes with --resume-args"
    )


def _in_vain(ledger: Ledger) -> str:
    at = f"step {ledger.furthest.step:,}" if ledger.furthest.step else "the beginning"
    return f"{DOOMED_AFTER} restarts in a row did not get past {at}. Tried: {_list(ledger)}"


def _list(ledger: Ledger) -> str:
    """What was tried, each once."""
    counted = Counter(remedy.text for remedy in ledger.changes)
    return "; ".join(f"{text} ({times} times)" if times > 1 else text for text, times in counted.items()) or "nothing"
