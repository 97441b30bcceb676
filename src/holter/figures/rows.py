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
from holter.figures.tone import tone_of
from holter.finding import Verdict
from holter.record.labels import Labels, read_labels
from holter.record.reader import Record, may_be_live, read_meta
from holter.record.recent import recent
from holter.units import duration

_NOTE_LETTERS = 300  # of a note in a list


def labels_of(folder: Path) -> dict[str, Any]:
    """What people wrote on a run, as far as a list shows it."""
    try:
        name = str(read_meta(folder).get("name") or "")
    except DamagedRecord:
        name = ""
    return _written(name, read_labels(folder))


def _written(name: str, labels: Labels) -> dict[str, Any]:
    note = labels.note if len(labels.note) <= _NOTE_LETTERS else labels.note[:_NOTE_LETTERS].rstrip() + "…"
    return {"name": mask(name), "tags": list(labels.tags), "note": note}


def first_row(folder: Path) -> dict[str, Any]:
    """What a list of a thousand runs begins with: of one that has ended only how it began."""
    try:
        meta = read_meta(folder)
    except DamagedRecord:
        return quick_row(folder)
    if may_be_live(meta):
        return quick_row(folder)
    return {**_facts(folder, examined(Record(meta))), "kind": "ended", "tone": "unknown"}


def quick_row(folder: Path) -> dict[str, Any]:
    """What can be told without a verdict: of a run that is on all but its findings, of another how it left."""
    try:
        record = examined(recent(folder))
    except DamagedRecord as error:
        found = {
            "id": folder.name,
            "kind": "unreadable",
            "tone": "bad",
            "why": str(error),
            "live": False,
            "known": True,
        }
        return {**found, **labels_of(folder)}
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
    why = first.claim if first is not None else verdict.ending.claim.removeprefix("The run ")
    row = {**_facts(folder, table), **now_of(table)}
    outcome = {
        "kind": kind,
        "tone": tone_of(verdict),
        "cause": first.cause if first else "",
        "why": mask(why),
        "known": True,
    }
    return {**row, "lasted": lasted_words, **outcome}


def _facts(folder: Path, record: RecordLike) -> dict[str, Any]:
    # A path is known by its last part; the run's own page has the whole of it.
    words = [word.rpartition("/")[2] or word if word.startswith("/") else word for word in record.facts.words]
    took = lasted(record)
    return {
        "id": folder.name,
        **_written(record.facts.name, read_labels(folder)),
        "words": mask(shlex.join(words))[:300],
        "started": record.facts.started,
        "lasted": duration(took) if took is not None else "",
        "seconds": took,
        "live": bool(record.live),
        "known": False,
    }
