"""What is marked on the charts: findings where their evidence lies, acts of healing, and the events of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holter.diagnosis.core.examined import Examined
from holter.figures.clock import Clock
from holter.figures.shape import short
from holter.finding import Finding, Verdict
from holter.record.events.agent import EarlyStop, UncaughtException
from holter.record.events.looks import NonfiniteLook
from holter.record.events.recorder import ForecastTold, Gap, KernelLine, SignalReceived, Stall, StallOver
from holter.record.events.schema import Event

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
_MAX_ACTS = 200  # acts that are shown; a record of a day has a dozen
_LAST = 40  # events of one kind


def span_of(record: Examined, finding: Finding, clock: Clock) -> tuple[float, float]:
    """From when to when the finding's evidence was seen; the whole training where its evidence has no time."""
    whens = [clock.of_wall(one.when) for one in finding.evidence if one.when]
    if finding.family == "hang":
        since = [event.since for event in record.of(Stall)]
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
        {**act, "time": _time(act.get("when"), clock)} for act in verdict.interventions[:_MAX_ACTS]
    ]  # fmt: skip


def events_json(record: Examined, clock: Clock) -> list[dict[str, Any]]:
    """The events that a reader of the charts wants to see, in order, each in a few words."""
    found = []
    for event, words in _events_in_words(record):
        if words:
            time = event.m - clock.start
            found.append({"kind": event.KIND, "text": words, "time": short(time), "step": clock.step_at(time)})
    return sorted(found, key=lambda one: float(one["time"] or 0.0))


def _events_in_words(record: Examined) -> Iterator[tuple[Event, str]]:
    """The last events of each kind, with their words; nothing for one that is not shown."""
    for forecast in record.of(ForecastTold)[-_LAST:]:
        yield forecast, forecast.text
    for stall in record.of(Stall)[-_LAST:]:
        yield stall, f"no progress in {stall.phase or 'an unknown phase'}"
    for over in record.of(StallOver)[-_LAST:]:
        yield over, "progress again"
    for raised in record.of(UncaughtException)[-_LAST:]:
        yield raised, f"{raised.type}: {raised.message}"[:300] if raised.main is not False else ""
    for line in record.of(KernelLine)[-_LAST:]:
        yield line, line.text[:300]
    for sent in record.of(SignalReceived)[-_LAST:]:
        yield sent, f"{sent.signal} was sent to Holter"
    for gap in record.of(Gap)[-_LAST:]:
        yield gap, f"nothing was read for {gap.monotonic or 0:.0f} s"
    for stop in record.of(EarlyStop)[-_LAST:]:
        yield stop, f"stopped on purpose by {stop.by}"
    for look in record.of(NonfiniteLook)[-_LAST:]:
        yield look, f"the {look.what or 'loss'} is non-finite, at step {look.step}"


def _when(when: float | None, clock: Clock) -> dict[str, Any]:
    time = _time(when, clock)
    return {"time": time, "step": clock.step_at(time) if time is not None else None}


def _time(when: Any, clock: Clock) -> float | int | None:
    return short(clock.of_wall(when)) if isinstance(when, (int, float)) and when else None
