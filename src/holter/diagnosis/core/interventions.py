"""What was done to keep the run going, and what was tried in vain: from the acts' own words."""

from __future__ import annotations

from typing import Any

from holter.diagnosis.core.rule import RecordLike
from holter.record.events.agent import Declined, Intervention


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
