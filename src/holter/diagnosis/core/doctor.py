"""The verdict: how a run ended, every rule's word on why with the root cause first, and what was done to save it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from holter.diagnosis.core.examined import examined
from holter.diagnosis.core.fitting_cures import fitting_cures
from holter.diagnosis.core.rule import RecordLike, Rule, find_rules
from holter.diagnosis.ending.ending import ending_of
from holter.diagnosis.ending.exits import exit_of
from holter.diagnosis.ending.tracebacks import warnings_printed
from holter.diagnosis.ranks.job import job_of, rank_numbers, with_ranks, world_of
from holter.finding import GRADE_ORDER, Ending, Evidence, Finding, Verdict
from holter.record.events.agent import Adapter, Declined, Intervention
from holter.record.events.recorder import Detached

# What is out of order with the machine, then with memory, then with the work itself, then how it came to an end.
_CAUSE_TO_EFFECT = (
    "device-lost", "disk-full", "resource", "recompile", "leak", "oversize", "fragmentation", "thrash", "hang", "nan",
    "native-crash", "user-error", "early-stop", "straggler", "input-bound", "overhead", "external", "cpu",
)  # fmt: skip
# What makes a run slow, large or worthless, but does not make it stop with an error of its own.
_NEVER_RAISES = ("recompile", "leak", "thrash", "straggler", "input-bound", "overhead", "cpu", "nan.unexplained")
_ITS_OWN_END = ("native-crash", "user-error")


def verdict(record: RecordLike) -> Verdict:
    """Say how a run ended and why; a pure function of the record."""
    table = examined(record)
    ending = ending_of(table)
    findings, failed = diagnose(table, ending)
    findings = with_ranks(table, ending, findings)
    sure = any(finding.grade != "hypothesis" for finding in findings)
    healthy = (ending.kind == "completed" and not sure) or (ending.kind == "running" and not findings)
    if not healthy:
        ending = replace(ending, evidence=(*ending.evidence, *_warned(table, findings)))
    return Verdict(run_of(table), ending, healthy, findings, interventions_of(table), failed)


def _warned(record: RecordLike, findings: tuple[Finding, ...]) -> Iterator[Evidence]:
    """Give the warnings that went by, but for what a finding has told."""
    reported = [one.value for finding in findings for one in finding.evidence]
    for warning in warnings_printed(record):
        if not any(value in warning.value for value in reported):
            yield warning


def diagnose(
    record: RecordLike, ending: Ending, rules: tuple[Rule, ...] | None = None
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Ask every rule, leave out what another finding explains, and put the root cause first.

    A rule that fails costs its own word alone; it is named in the second part.
    """
    asked: list[tuple[Rule, Finding]] = []
    failed = []
    for rule in find_rules() if rules is None else rules:
        try:
            answer = rule.examine(record, ending)
            answers = [answer] if isinstance(answer, Finding) else list(answer or ())
        except Exception as error:
            failed.append(f"{rule.cause}: {type(error).__name__}: {error}")
            continue
        asked.extend((rule, finding) for finding in answers)
    # A guess explains nothing away, except another guess.
    explain = [finding for rule, finding in asked if rule.explains]
    sure = {name for finding in explain if finding.grade != "hypothesis" for name in (finding.cause, finding.family)}
    names = {name for finding in explain for name in (finding.cause, finding.family)}
    kept = [
        finding
        for rule, finding in asked
        if not (sure if finding.grade != "hypothesis" else names) & set(rule.yields_to)
    ]
    words = record.facts.words
    fitted = [
        fitting_cures(one, record.source(one.culprit.file) if one.culprit is not None else (), words) for one in kept
    ]
    return in_order(fitted, ending), tuple(failed)


def run_of(record: RecordLike) -> dict[str, Any]:
    """Give what the schema says of the run itself."""
    facts, exited = record.facts, exit_of(record)
    ends = [exited.t] if exited is not None else [event.t for event in record.of(Detached)]
    frameworks = {
        event.framework: event.version for event in record.of(Adapter) if event.framework and event.state != "declined"
    }
    return {
        "id": facts.id,
        "name": facts.name,
        "command": facts.words,
        "started": facts.started,
        "ended": ends[-1] if ends else None,
        "host": facts.host,
        "frameworks": frameworks,
        "job": _job_of(record),
    }


def _job_of(record: RecordLike) -> dict[str, Any] | None:
    """Give the job that a run belongs to, and which of its ranks are in this record; None for a run of its own."""
    world, job = world_of(record), job_of(record)
    if world < 2 and not job.key:
        return None
    here = sorted(set(rank_numbers(record).values()))
    return {"key": job.key, "launcher": job.launcher, "world": world, "ranks": here, "restart": job.restart}


def interventions_of(record: RecordLike) -> tuple[dict[str, Any], ...]:
    """Give each act once, in order: what it did and what it kept, or why it could not be done."""
    found = []
    for event in record.of(Intervention):
        found.append({**_of(event), "done": True, "keeps": event.keeps, "text": event.text})
    for declined in record.of(Declined):
        found.append({**_of(declined), "done": False, "keeps": None, "text": ""})
    found.sort(key=lambda one: one["when"])
    return tuple(one for n, one in enumerate(found) if not any(_same(one, other) for other in found[:n]))


def _of(event: Intervention | Declined) -> dict[str, Any]:
    return {"act": event.act, "step": event.step, "when": event.t, "because": event.because}


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Ranks and restarts tell the same act again."""
    return all(one[key] == other[key] for key in ("act", "done", "text", "because"))


def in_order(findings: Collection[Finding], ending: Ending) -> tuple[Finding, ...]:
    """Put the root cause first and what follows from it after.

    A leak explains the OOM kill, swap explains the slow steps, a dead worker explains the hang. What is sure stands
    before what is a guess; among the sure ones the way from cause to effect decides, not how sure each of them is.
    """
    own_end = ending.kind in ("exception", "crashed") and any(
        finding.family in _ITS_OWN_END and finding.grade != "hypothesis" for finding in findings
    )

    def weight(finding: Finding) -> tuple[bool, bool, int, int, str]:
        family = finding.family
        aside = own_end and (family in _NEVER_RAISES or finding.cause in _NEVER_RAISES)
        place = _CAUSE_TO_EFFECT.index(family) if family in _CAUSE_TO_EFFECT else len(_CAUSE_TO_EFFECT)
        return finding.grade == "hypothesis", aside, place, GRADE_ORDER.get(finding.grade, 9), finding.cause

    return tuple(sorted(findings, key=weight))
