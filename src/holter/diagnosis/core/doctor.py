"""The verdict: how a run ended, and every rule's word on why, the root cause first."""

from __future__ import annotations

from typing import Any

from holter.diagnosis.core.examined import examined
from holter.diagnosis.core.fitting_cures import fitting_cures
from holter.diagnosis.core.interventions import interventions_of
from holter.diagnosis.core.order import in_order
from holter.diagnosis.core.rule import RecordLike, Rule, find_rules
from holter.diagnosis.ending.ending import ending_of
from holter.diagnosis.ending.exits import exit_of
from holter.finding import Ending, Finding, Verdict
from holter.record.events.agent import Adapter


def verdict(record: RecordLike) -> Verdict:
    """Say how a run ended and why; a pure function of the record."""
    table = examined(record)
    ending = ending_of(table)
    findings, failed = diagnose(table, ending)
    sure = any(finding.grade != "hypothesis" for finding in findings)
    healthy = (ending.kind == "completed" and not sure) or (ending.kind == "running" and not findings)
    return Verdict(run_of(table), ending, healthy, findings, interventions_of(table), failed)


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
            said = [answer] if isinstance(answer, Finding) else list(answer or ())
        except Exception as error:
            failed.append(f"{rule.cause}: {type(error).__name__}: {error}")
            continue
        asked.extend((rule, finding) for finding in said)
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
    facts, left = record.facts, exit_of(record)
    frameworks = {
        event.framework: event.version for event in record.of(Adapter) if event.framework and event.state != "declined"
    }
    return {
        "id": facts.id,
        "name": facts.name,
        "command": facts.words,
        "started": facts.started,
        "ended": left.t if left is not None else None,
        "host": facts.host,
        "frameworks": frameworks,
    }
