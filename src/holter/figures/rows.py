"""A run as one row of a list: quickly from its last moments, or in full from its verdict."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from holter.diagnosis.core.examined import examined
from holter.diagnosis.core.progress import lasted
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import exit_of
from holter.errors import DamagedRecord
from holter.figures.document import mask
from holter.figures.now import alarm_of, now_of
from holter.finding import Verdict
from holter.record.recent import recent
from holter.units import duration


def quick_row(folder: Path) -> dict[str, Any]:
    """What can be told without a verdict: of a run that is on all but its findings, of another how it left."""
    try:
        record = examined(recent(folder))
    except DamagedRecord as error:
        return {"id": folder.name, "kind": "unreadable", "tone": "bad", "why": str(error), "live": False, "known": True}
    exited = exit_of(record)
    row = _facts(folder, record)
    if row["live"]:
        return {**row, "kind": "running", "tone": "wait", "why": mask(alarm_of(record)), **now_of(record)}
    how = "" if exited is None else exited.signal or (f"exit code {exited.code}" if exited.code is not None else "")
    return {**row, "kind": how or "ended", "tone": "unknown"}


def full_row(folder: Path, record: RecordLike, verdict: Verdict, lasted_words: str) -> dict[str, Any]:
    """The row with the verdict's own words."""
    table = examined(record)
    first = verdict.findings[0] if verdict.findings else None
    kind = "looked at" if verdict.looked_at else verdict.ending.kind
    tone = "unknown" if verdict.looked_at else "wait" if kind == "running" else "good" if verdict.healthy else "bad"
    why = first.claim if first is not None else verdict.ending.claim
    row = {**_facts(folder, table), **now_of(table)}
    outcome = {"kind": kind, "tone": tone, "cause": first.cause if first else "", "why": mask(why), "known": True}
    return {**row, "lasted": lasted_words, **outcome}


def _facts(folder: Path, record: RecordLike) -> dict[str, Any]:
    # A path is known by its last part; the run's own page has the whole of it.
    words = [word.rpartition("/")[2] or word if word.startswith("/") else word for word in record.facts.words]
    took = lasted(record)
    return {
        "id": folder.name,
        "name": mask(record.facts.name),
        "words": mask(shlex.join(words))[:300],
        "started": record.facts.started,
        "lasted": duration(took) if took is not None else "",
        "live": bool(record.live),
        "known": False,
    }
