"""A run as one row of a list: quickly from its last moments, or in full from its verdict."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from holter.diagnosis.examined import examined
from holter.diagnosis.exits import exit_of
from holter.diagnosis.fields import number, text
from holter.diagnosis.memory import memory_curve
from holter.diagnosis.progress import lasted, progress_of
from holter.diagnosis.rule import RecordLike
from holter.errors import DamagedRecord
from holter.finding import Verdict
from holter.record.recent import recent
from holter.series.document import mask
from holter.series.shape import short
from holter.units import count, duration, size


def quick_row(folder: Path) -> dict[str, Any]:
    """What can be told without a verdict: of a run that is on all but its findings, of another how it left."""
    try:
        record = examined(recent(folder))
    except DamagedRecord as error:
        return {"id": folder.name, "kind": "unreadable", "tone": "bad", "why": str(error), "live": False, "known": True}
    left = exit_of(record)
    row = _facts(folder, record)
    if row["live"]:
        return {**row, "kind": "running", "tone": "wait", "why": mask(_alarm(record)), **_now(record)}
    how = "" if left is None else left.signal or (f"exit code {left.code}" if left.code is not None else "")
    return {**row, "kind": how or "ended", "tone": "unknown"}


def _alarm(record: RecordLike) -> str:
    """What was last said of a run that is on, unless it is over: a hang, or what is to come."""
    for event in reversed(record.events):
        kind, state = text(event, "k"), text(event, "state")
        if kind == "stall":
            return f"no progress in {text(event, 'phase') or 'an unknown phase'}"
        if kind == "forecast":
            return text(event, "text") if state in ("foreseen", "slower") else ""
        if kind == "stall-over":
            return ""
    return ""


def full_row(folder: Path, record: RecordLike, verdict: Verdict, lasted_words: str) -> dict[str, Any]:
    """The row with the verdict's own words."""
    table = examined(record)
    first = verdict.findings[0] if verdict.findings else None
    kind = verdict.ending.kind
    tone = "wait" if kind == "running" else "good" if verdict.healthy else "bad"
    why = first.claim if first is not None else verdict.ending.claim
    row = {**_facts(folder, table), **_now(table)}
    said = {"kind": kind, "tone": tone, "cause": first.cause if first else "", "why": mask(why), "known": True}
    return {**row, "lasted": lasted_words, **said}


def _facts(folder: Path, record: Any) -> dict[str, Any]:
    command = record.meta.get("command")
    words = [word for word in command if isinstance(word, str)] if isinstance(command, list) else []
    # A path is known by its last part; the run's own page has the whole of it.
    words = [word.rpartition("/")[2] or word if word.startswith("/") else word for word in words]
    took = lasted(record)
    return {
        "id": folder.name,
        "name": mask(text(record.meta, "name")),
        "words": mask(shlex.join(words))[:300],
        "started": number(record.meta, "started"),
        "lasted": duration(took) if took is not None else "",
        "live": bool(record.live),
        "known": False,
    }


def _now(record: Any) -> dict[str, Any]:
    """Where a run stands: its step, its phase, its memory; of one that has ended the most it held."""
    progress, memory = progress_of(record), memory_curve(record)
    planned = progress.planned if progress.step and (progress.planned or 0) >= progress.step else None
    held = (memory.late if record.live else memory.peak) if memory is not None else None
    return {
        "step": f"{count(progress.step)}{f' of {count(planned)}' if planned else ''}" if progress.step else "",
        "phase": progress.phase,
        "memory": size(held) if held is not None else "",
        "full": short(held / memory.limit) if held is not None and memory is not None and memory.limit else None,
    }
