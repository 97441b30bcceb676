"""How a run is at a glance: the one word that every view paints."""

from __future__ import annotations

from holter.finding import Verdict

# What makes a run that came to its end slow or large, and leaves its result as it is.
_SLOW_OR_LARGE = (
    "leak", "oversize", "fragmentation", "thrash", "recompile", "input-bound", "overhead", "cpu", "hang", "external",
)  # fmt: skip


def tone_of(verdict: Verdict) -> str:
    """How a run is at a glance: `good`, `slow` (completed, but slow or leaking), `bad`, `wait` (on), `unknown`."""
    if verdict.looked_at:
        return "unknown"
    if verdict.ending.kind == "running":
        return "wait"
    if verdict.healthy:
        return "good"
    sure = [finding for finding in verdict.findings if finding.grade != "hypothesis"]
    slow = verdict.ending.kind == "completed" and all(finding.family in _SLOW_OR_LARGE for finding in sure)
    return "slow" if slow else "bad"
