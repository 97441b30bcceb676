"""All that a view shows of one run, as one JSON document; what looks like a secret in it is masked."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict
from typing import Any

from holter.diagnosis.core.examined import Examined, examined
from holter.diagnosis.core.rule import RecordLike
from holter.figures.attachments import environment_of, output_lines, stacks_json
from holter.figures.charts import charts_json, charts_of
from holter.figures.clock import Clock, clock_of
from holter.figures.marks import events_json, finding_json, interventions_json
from holter.figures.now import alarm_of, figures_of, now_of, phase_time
from holter.figures.summary import summary_of
from holter.figures.tone import tone_of
from holter.finding import Verdict
from holter.record.privacy import mask_text

_A_HOME = re.compile(r"/(?:home|Users)/[^/\s\"']+(?=/)")


def words_of(record: RecordLike, verdict: Verdict, clock: Clock | None = None) -> dict[str, Any]:
    """The document without its charts."""
    table = examined(record)
    clock = clock or clock_of(table)
    shown = summary_of(table, verdict)
    run = verdict.run
    document = {
        "schema": 1,
        "holter": table.facts.holter,
        "run": {**run, "words": shlex.join(run["command"]), "live": bool(record.live)},
        "ending": {key: value for key, value in asdict(verdict.ending).items() if key != "evidence"},
        "evidence": _of_the_ending(verdict),
        "healthy": verdict.healthy,
        "tone": tone_of(verdict),
        "findings": [finding_json(table, finding, clock) for finding in verdict.findings],
        "interventions": interventions_json(verdict, clock),
        "events": events_json(table, clock),
        "now": {**now_of(table), "since": phase_time(table), "alarm": alarm_of(table) if record.live else ""},
        "figures": [asdict(figure) for figure in figures_of(table, shown)],
        "told": list(shown.told),
        "damage": list(shown.damage),
        "stacks": stacks_json(table, clock),
        "output": output_lines(table.output),
        "environment": environment_of(table),
        "clock": clock.as_json(),
    }
    masked: dict[str, Any] = mask(document)
    return masked


def _of_the_ending(verdict: Verdict) -> list[dict[str, str]]:
    """The proof of how it ended, without what the findings show already."""
    shown = {(one.what, one.value) for finding in verdict.findings for one in finding.evidence}
    proof = [one for one in verdict.ending.evidence if (one.what, one.value) not in shown]
    return [{"what": one.what, "value": one.value} for one in proof if one.value not in verdict.ending.claim]


def document_of(record: RecordLike, verdict: Verdict, columns: int = 600) -> dict[str, Any]:
    """The whole document, as the one-file report carries it."""
    table: Examined = examined(record)
    clock = clock_of(table)
    charts = charts_json(charts_of(table, verdict.ending, clock), columns, None, None)
    return {**words_of(table, verdict, clock), "charts": charts}


def mask(value: Any) -> Any:
    """The same with secrets masked in every text, and without the name of anyone's home."""
    if isinstance(value, str):
        return _A_HOME.sub("~", mask_text(value))
    if isinstance(value, dict):
        return {key: mask(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [mask(item) for item in value]
    return value
