"""The verdict: how a run ended, and every rule's word on why, the root cause first."""

from __future__ import annotations

from typing import Any

from holter.diagnosis.ending import ending_of
from holter.diagnosis.examined import examined
from holter.diagnosis.exits import exit_of
from holter.diagnosis.fields import number, text
from holter.diagnosis.rule import RecordLike, Rule, find_rules
from holter.finding import GRADE_ORDER, Ending, Finding, Verdict

# Causes before what follows from them, where two findings are equally sure.
_FIRST = ("device-lost", "disk-full", "resource", "leak", "oversize", "fragmentation", "nan", "hang",
          "early-stop", "recompile", "thrash", "input-bound", "overhead", "cpu",
          "native-crash", "external", "user-error")  # fmt: skip


def verdict(record: RecordLike) -> Verdict:
    """Say how a run ended and why; a pure function of the record."""
    table = examined(record)
    ending = ending_of(table)
    findings = diagnose(table, ending)
    sure = any(finding.grade != "hypothesis" for finding in findings)
    healthy = (ending.kind == "completed" and not sure) or (ending.kind == "running" and not findings)
    return Verdict(run_of(table), ending, healthy, findings)


def diagnose(record: RecordLike, ending: Ending, rules: tuple[Rule, ...] | None = None) -> tuple[Finding, ...]:
    """Ask every rule, leave out what another finding explains, and put the root cause first."""
    asked: list[tuple[Rule, Finding]] = []
    for rule in find_rules() if rules is None else rules:
        answer = rule.examine(record, ending)
        if isinstance(answer, Finding):
            asked.append((rule, answer))
        elif answer is not None:
            asked.extend((rule, finding) for finding in answer)
    names = {name for _, finding in asked for name in (finding.cause, finding.family)}
    kept = [finding for rule, finding in asked if not names & set(rule.yields_to)]
    return tuple(sorted(kept, key=_weight))


def _weight(finding: Finding) -> tuple[int, int, str]:
    family = finding.family
    return GRADE_ORDER.get(finding.grade, 9), _FIRST.index(family) if family in _FIRST else 50, finding.cause


def run_of(record: RecordLike) -> dict[str, Any]:
    """Give what the schema says of the run itself."""
    meta, left = record.meta, exit_of(record)
    command = meta.get("command")
    known = [word for word in command if isinstance(word, str)] if isinstance(command, list) else []
    frameworks = {
        text(event, "framework"): text(event, "version")
        for event in record.events_of("adapter")
        if text(event, "framework") and text(event, "state") != "declined"
    }
    return {
        "id": text(meta, "id"),
        "name": text(meta, "name"),
        "command": known or ([command] if isinstance(command, str) else []),
        "started": number(meta, "started"),
        "ended": left.t if left is not None else None,
        "host": text(meta, "host"),
        "frameworks": frameworks,
    }
