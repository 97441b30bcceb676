"""What is marked on the charts: findings where their evidence lies, acts of healing, and the events of a run."""

from __future__ import annotations

from typing import Any

from holter.diagnosis.core.examined import Examined
from holter.diagnosis.core.fields import flag, moment, number, text, whole
from holter.figures.clock import Clock
from holter.figures.shape import short
from holter.finding import Finding, Verdict

# The chart on which a family's findings are seen best comes first.
_CHARTS = {
    "leak": ("memory", "device", "swap"),
    "oversize": ("memory", "device"),
    "fragmentation": ("device",),
    "thrash": ("swap", "pressure", "rate", "memory"),
    "nan": ("loss",),
    "hang": ("rate", "busy", "step"),
    "input-bound": ("step", "rate", "busy"),
    "overhead": ("step", "rate", "busy"),
    "recompile": ("step", "rate"),
    "cpu": ("busy", "pressure", "step"),
    "disk-full": ("pressure",),
    "early-stop": ("rate", "loss"),
    "external": ("rate",),
    "device-lost": ("device", "busy"),
}
_MOST = 200  # acts that are shown; a record of a day has a dozen
_EVENTS = ("forecast", "stall", "stall-over", "exception", "kernel", "signal", "gap", "early-stop", "nan")


def span_of(record: Examined, finding: Finding, clock: Clock) -> tuple[float, float]:
    """From when to when the finding's evidence was seen; the whole training where its evidence has no time."""
    whens = [clock.of_wall(one.when) for one in finding.evidence if one.when]
    if finding.family == "hang":
        since = [number(event, "since") for event in record.events_of("stall")]
        known = [one - clock.start for one in since if one is not None]
        return (known[-1], clock.length) if known else (clock.times[-1] if clock.times else 0.0, clock.length)
    if finding.family in ("leak", "oversize", "fragmentation") and whens:
        # Memory had to grow before it was missed.
        return min(clock.times[0] if clock.times else 0.0, *whens), max(whens)
    if finding.family == "nan" and whens:
        return min(whens), clock.length
    if len(whens) > 1:
        return min(whens), max(whens)
    if clock.times:
        return clock.times[0], clock.times[-1]
    return (whens[0], whens[0]) if whens else (0.0, clock.length)


def finding_json(record: Examined, finding: Finding, clock: Clock) -> dict[str, Any]:
    """A finding with the places of its evidence: seconds into the run, steps, and the charts that show it."""
    since, until = span_of(record, finding, clock)
    return {
        "cause": finding.cause,
        "family": finding.family,
        "grade": finding.grade,
        "claim": finding.claim,
        "evidence": [
            {"what": one.what, "value": one.value, **_when(one.when, clock)} for one in finding.evidence
        ],
        "culprit": vars(finding.culprit) if finding.culprit else None,
        "cures": [vars(cure) for cure in finding.cures],
        "forecast": finding.forecast.what if finding.forecast else None,
        "span": [short(since), short(until)],
        "charts": _charts_of(finding),
    }  # fmt: skip


def _charts_of(finding: Finding) -> list[str]:
    """The charts of the family; memory that was missed is either the run's or the device's."""
    found = list(_CHARTS.get(finding.family, ()))
    if "memory" in found and "device" in found:
        return ["device"] if "device" in finding.claim else [key for key in found if key != "device"]
    return found


def interventions_json(verdict: Verdict, clock: Clock) -> list[dict[str, Any]]:
    """What was done to keep the run going, and what was tried in vain."""
    return [
        {**act, "time": _time(act.get("when"), clock)} for act in verdict.interventions[:_MOST]
    ]  # fmt: skip


def events_json(record: Examined, clock: Clock) -> list[dict[str, Any]]:
    """The events that a reader of the charts wants to see, in order, each in a few words."""
    found = []
    for kind in _EVENTS:
        for event in record.events_of(kind)[-40:]:
            words = _words(kind, event)
            if words:
                time = moment(event) - clock.start
                found.append({"kind": kind, "text": words, "time": short(time), "step": clock.step_at(time)})
    return sorted(found, key=lambda one: float(one["time"] or 0.0))


def _words(kind: str, event: dict[str, Any]) -> str:
    if kind == "forecast":
        return text(event, "text")
    if kind == "stall":
        return f"no progress in {text(event, 'phase') or 'an unknown phase'}"
    if kind == "stall-over":
        return "progress again"
    if kind == "exception":
        return f"{text(event, 'type')}: {text(event, 'message')}"[:300] if flag(event, "main") is not False else ""
    if kind == "kernel":
        return text(event, "text")[:300]
    if kind == "signal":
        return f"{text(event, 'signal')} was sent to Holter"
    if kind == "gap":
        return f"nothing was read for {number(event, 'monotonic') or 0:.0f} s"
    if kind == "early-stop":
        return f"stopped on purpose by {text(event, 'by')}"
    return f"the {text(event, 'what') or 'loss'} is non-finite, at step {whole(event, 'step')}"


def _when(when: float | None, clock: Clock) -> dict[str, Any]:
    time = _time(when, clock)
    return {"time": time, "step": clock.step_at(time) if time is not None else None}


def _time(when: Any, clock: Clock) -> float | int | None:
    return short(clock.of_wall(when)) if isinstance(when, (int, float)) and when else None
