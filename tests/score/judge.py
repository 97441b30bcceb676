"""Compares what Holter said of a run, then and afterwards, with the truth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holter.record.events.recorder import Ended, Exited, ForecastTold
from holter.record.events.timeline import StepWindow
from holter.record.reader import Record, find, open_record
from tests.claims import contradictions
from tests.score.patient import Patient

NEAR = 2  # lines between the culprit that was named and the true one
WITHIN = 0.20  # of the run's length, between the end that was forecast and the real one


@dataclass
class Score:
    """One patient's line in the table; what does not apply is None."""

    patient: Patient
    skipped: str = ""
    said: str = ""
    grade: str = ""
    claim: str = ""
    ending: str = ""
    ending_right: bool | None = None
    family_right: bool | None = None
    detail_right: bool | None = None
    culprit_right: bool | None = None
    culprit_said: str = ""
    others: list[str] = field(default_factory=list)
    verdict_s: float | None = None
    run_s: float | None = None
    forecast: str = ""
    forecast_at: float | None = None
    lead_s: float | None = None
    forecast_error: float | None = None
    forecast_right: bool | None = None
    alarms: list[str] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """A sick one's family named, a healthy one left in peace, and nothing said that its own figures contradict."""
        named = not self.alarms if self.patient.cause is None else bool(self.family_right)
        return named and not self.contradictions


def judge(patient: Patient, home: Path) -> Score:
    """Ask for the verdict as a user would, and hold it against the sidecar."""
    score = Score(patient)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "holter", "why", "--json"],
        env={**os.environ, "HOLTER_HOME": str(home)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    score.verdict_s = time.monotonic() - began
    if done.returncode:
        score.skipped = f"no verdict: {done.stderr.strip()[-200:]}"
        return score
    verdict = json.loads(done.stdout)
    score.ending = verdict["ending"]["kind"]
    score.ending_right = score.ending in patient.endings
    score.contradictions = contradictions(verdict)
    _compare(score, verdict["findings"])
    _look_back(score, open_record(find(None, home)))
    return score


def _compare(score: Score, findings: list[dict[str, Any]]) -> None:
    patient = score.patient
    score.others = [f"{each['cause']} ({each['grade']})" for each in findings[1:]]
    if patient.cause is None:
        score.alarms += [f"{each['cause']} ({each['grade']})" for each in findings if each["grade"] != "hypothesis"]
    else:
        score.family_right = score.detail_right = False
        score.culprit_right = False if patient.culprit else None
    if not findings:
        return
    first = findings[0]
    score.said, score.grade, score.claim = first["cause"], first["grade"], first["claim"]
    culprit = first["culprit"] or {}
    score.culprit_said = f"{Path(culprit['file']).name}:{culprit['line']}" if culprit else ""
    if patient.cause is None:
        return
    score.detail_right = first["cause"] in (patient.cause, *patient.also)
    score.family_right = score.detail_right or first["cause"].partition(".")[0] == patient.family
    if patient.culprit is not None:
        same_file = Path(culprit.get("file", "")).name == patient.script.name
        score.culprit_right = same_file and any(abs(culprit["line"] - line) <= NEAR for line in patient.culprit_lines)


def _look_back(score: Score, record: Record) -> None:
    """What was said while the run was still on: when, and how true it came."""
    begun = float(record.meta["started"])
    ends: list[Exited] = [*record.of(Ended)] or record.of(Exited)
    ended = ends[-1].t if ends else begun
    score.run_s = ended - begun
    forecast = record.of(ForecastTold)
    if score.patient.cause is None:
        score.alarms += [f"forecast: {_words(each)}" for each in forecast]
    if not forecast:
        score.forecast_right = False if score.patient.grows else None
        return
    first = forecast[0]
    score.forecast, score.lead_s = _words(first), ended - first.t
    steps_then, steps_all = _steps(record, first.t), _steps(record, float("inf"))
    score.forecast_at = steps_then / steps_all if steps_all else None
    if first.step is not None and steps_all:
        score.forecast_error = abs(first.step - steps_all) / steps_all  # how long the kernel hesitates is not forecast
    elif first.when is not None and score.run_s:
        score.forecast_error = abs(first.when - ended) / score.run_s
    if score.patient.grows:
        early = score.forecast_at is None or score.forecast_at <= 0.5
        score.forecast_right = early and score.forecast_error is not None and score.forecast_error <= WITHIN


def _words(event: ForecastTold) -> str:
    return event.what or event.text


def _steps(record: Record, until: float) -> int:
    """The training steps that were done at a moment, the busiest process's."""
    done: dict[int, int] = {}
    for line in record.of(StepWindow):
        if line.t <= until and line.pid is not None and line.last is not None:
            done[line.pid] = max(done.get(line.pid, 0), line.last)
    return max(done.values(), default=0)
