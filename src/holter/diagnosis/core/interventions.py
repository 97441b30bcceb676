"""What was done to keep the run going, and what was tried in vain: from the acts' own words."""

from __future__ import annotations

from typing import Any

from holter.diagnosis.core.fields import number, text, whole
from holter.diagnosis.core.rule import RecordLike


def interventions_of(record: RecordLike) -> tuple[dict[str, Any], ...]:
    """Give each act once, in order: what it did and what it kept, or why it could not be done."""
    found = []
    for event in record.events_of("intervention"):
        found.append({**_of(event), "done": True, "keeps": text(event, "keeps"), "text": text(event, "text")})
    for event in record.events_of("declined"):
        found.append({**_of(event), "done": False, "keeps": None, "text": text(event, "text")})
    found.sort(key=lambda one: one["when"] or 0.0)
    return tuple(one for n, one in enumerate(found) if not any(_same(one, other) for other in found[:n]))


def _of(event: dict[str, Any]) -> dict[str, Any]:
    return {
        "act": text(event, "act"),
        "step": whole(event, "step"),
        "when": number(event, "t"),
        "because": text(event, "because"),
    }


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Ranks and restarts tell the same act again."""
    return all(one[key] == other[key] for key in ("act", "done", "text", "because"))
