"""The run's memory by role and the device's, each against its limit, with what was foretold of it."""

from __future__ import annotations

from collections import defaultdict

from holter.diagnosis.core.examined import Examined
from holter.diagnosis.core.figures import shown_memory
from holter.diagnosis.memory.memory import MemoryCurve, allocated_curve, device_curve
from holter.figures.shape import Ahead, Chart, Points, chart_of
from holter.finding import Ending
from holter.record.events.agent import AgentHello
from holter.record.events.recorder import ForecastTold
from holter.record.events.timeline import Processes
from holter.units import size

_COUNTS = 0.02  # of the largest role: the shell that started it is not worth a line
_ROLES = (("trainer", "trainer"), ("worker", "data workers"), ("other", "other processes"))


def memory_chart(record: Examined, ending: Ending, start: float) -> Chart | None:
    """The run's memory as the verdict counts it, and the resident part of each role."""
    curve = shown_memory(record, ending)
    lines: list[tuple[str, str, Points]] = [("run", "the run", curve.points if curve is not None else ())]
    by_role = _by_role(record, curve)
    if len(by_role) > 1 or curve is None:
        lines += [(role, label, by_role[role]) for role, label in _ROLES if role in by_role]
    return chart_of(
        "memory", "Memory", "bytes", start, lines,
        **_limit(curve), ahead=_foretold(record, "memory", start),
    )  # fmt: skip


def device_chart(record: Examined, start: float) -> Chart | None:
    """The fullest device by its driver, and what the framework itself holds there."""
    used, held = device_curve(record), allocated_curve(record)
    lines = [
        ("device", "the device", used.points if used is not None else ()),
        ("allocated", "held by tensors", held.points if held is not None else ()),
    ]
    return chart_of(
        "device", "Device memory", "bytes", start, lines,
        **_limit(used), ahead=_foretold(record, "device-memory", start),
    )  # fmt: skip


def _limit(curve: MemoryCurve | None) -> dict[str, object]:
    if curve is None or not curve.limit:
        return {}
    return {"limit": curve.limit, "limit_label": f"{curve.limit_words}, {size(curve.limit)}"}


def _by_role(record: Examined, curve: MemoryCurve | None) -> dict[str, list[tuple[float, float]]]:
    """Each role's part of the run's memory, by what its processes have resident; a role that hardly counts is none.

    Pages that several processes share stand in each one's own count. Where they add up to more than the run holds,
    each role has its share of that.
    """
    roles = {event.pid: event.role for event in record.of(AgentHello)}
    held_at = dict(curve.points) if curve is not None else {}
    end = curve.points[-1][0] if curve is not None else float("inf")
    found: dict[str, list[tuple[float, float]]] = {}
    for m, reading in record.readings(Processes):
        if m > end:
            break
        held: dict[str, float] = defaultdict(float)
        for row in reading.rows:
            role = roles.get(row.pid, "")
            held[role if role in ("trainer", "worker") else "other"] += (row.rss or 0.0) + (row.swap or 0.0)
        factor = min(1.0, held_at.get(m, float("inf")) / (sum(held.values()) or 1.0))
        for role, value in held.items():
            found.setdefault(role, []).append((m, value * factor))
    most = {role: max(value for _, value in points) for role, points in found.items()}
    return {role: points for role, points in found.items() if most[role] > _COUNTS * max(most.values())}


def _foretold(record: Examined, what: str, start: float) -> tuple[Ahead, ...]:
    """Every forecast of this kind, as it was told; what was taken back stays: it was on the screen."""
    found = []
    began = record.facts.started or 0.0
    for event in record.of(ForecastTold):
        used, limit, when, early, late = event.used, event.limit, event.when, event.earliest, event.latest
        if event.what != what or used is None or limit is None or when is None or early is None or late is None:
            continue
        found.append(Ahead(event.m - start, used, limit, when - began, early - began, late - began))
    return tuple(found)
