"""A checkpoint that will not fit: said while there is time to make room for it."""

from __future__ import annotations

from typing import Any

from holter.diagnosis.forecast.pace import Pace
from holter.record.events.agent import NoSpace
from holter.units import size


def next_checkpoint(event: NoSpace, course: Pace) -> dict[str, Any] | None:
    """Give the forecast for a disk that has no room for one more; None where there may be no next one."""
    took, free, folder = event.bytes, event.free, event.path
    if not took or free is None or not folder:
        return None
    step, every, saves = event.step or 0, event.every or 0, event.saves or 0
    planned = course.planned or None
    if (planned is None and saves < 2) or (planned is not None and step + every > planned):
        return None
    left = f"{size(free)} are left" if free else "nothing is left"
    told: dict[str, Any] = {"what": "disk", "name": folder, "state": "foreseen", "at_step": step}
    told |= {"used": (event.total or 0.0) - free, "limit": event.total}
    told |= {"step": step + every} if every else {}
    when = f", about step {step + every:,}," if every else ""
    return told | {
        "text": f"the next checkpoint of {size(took)}{when} will not fit: {left} on {folder}; make room there"
    }
