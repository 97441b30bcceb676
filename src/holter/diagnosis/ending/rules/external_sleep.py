"""The machine slept while the run was on.

What it sees: a gap in the record during which the machine's clocks say that it was asleep (a closed lid, suspend), and
how the run went on afterwards.
Why it matters: a night's training that took two nights; a connection to a server or to other ranks that did not
survive.
May be confused with: a clock that was set, which no sleep goes with; a run that was stopped with a signal (Ctrl-Z,
SIGSTOP, a scheduler that suspends jobs), which is told as `external.stopped`: somebody asked for that; a short nap.
How sure: established where the machine's own clocks count the sleep; supported where only wall-clock time jumped ahead.
An error soon after waking that speaks of a connection is taken for its consequence, no other.
Cure: keep the machine awake while it trains.
"""

from __future__ import annotations

import re

from holter.diagnosis.core.evidence import on_macos
from holter.diagnosis.core.progress import lasted
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import ended_at
from holter.diagnosis.ending.raised import culprit_of, message_of, raised_at_end
from holter.finding import Cure, Ending, Evidence, Finding, Grade
from holter.record.events.recorder import Gap
from holter.units import duration, share

CAUSE = "external.sleep"

_SHORTEST = 60.0
_MIN_SHARE = 0.05  # of the run: less is not what made it slow
_AFTER_WAKING = 900.0
_CONNECTION = re.compile(
    r"[Cc]onnection|[Tt]imed? ?out|[Bb]roken pipe|reset by peer|\bEOF\b|Name or service not known|NCCL|[Gg]loo|"
    r"Transport endpoint|Host is down|No route to host|Stale file handle|SSL"
)


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say how long the machine slept, and what came of it."""
    naps = [(event.m, *_slept(event), event.t) for event in record.of(Gap)]
    naps = [nap for nap in naps if nap[1] >= 3]
    total = sum(nap[1] for nap in naps)
    if total < _SHORTEST:
        return None
    grade: Grade = "established" if all(nap[2] for nap in naps) else "supported"
    awake, end = lasted(record), ended_at(record)
    raised = raised_at_end(record) if ending.kind in ("exception", "crashed") else None
    after = end - naps[-1][0] if end is not None else 0.0
    cut = raised is not None and bool(_CONNECTION.search(message_of(raised))) and after <= _AFTER_WAKING
    if ending.kind in ("exception", "crashed", "stopped-early", "oom-killed") and not cut:
        return None  # it slept, and failed of something else
    if not cut and awake is not None and total < _MIN_SHARE * (awake + total):
        return None
    part = f", {share(total / (awake + total))} of the run" if awake else ""
    times = f" ({len(naps)} times)" if len(naps) > 1 else ""
    claim = f"the machine slept for {duration(total)}{times}{part}"
    if raised is not None:
        claim += f"; {raised.name} came {duration(max(0.0, after))} after it woke: the connection did not survive"
    evidence = [Evidence("asleep", f"for {duration(nap[1])}", nap[3]) for nap in naps[-3:]]
    keep = "caffeinate -is" if on_macos(record) else "systemd-inhibit"
    cures = (
        Cure("keep the machine awake while it trains", f"{keep} holter run -- COMMAND"),
        Cure("write checkpoints, so that a run that loses its connections goes on from one"),
    )
    return Finding(CAUSE, grade, claim, tuple(evidence), culprit_of(raised), cures)


def _slept(event: Gap) -> tuple[float, bool]:
    """Give the seconds of sleep in a gap, and whether a clock counted them."""
    counted = event.slept
    if counted is not None:
        return counted, True
    ahead = (event.wall or 0.0) - (event.monotonic or 0.0)
    return (ahead, False) if ahead >= _SHORTEST else (0.0, False)
