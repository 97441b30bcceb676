"""Cause before effect: which of several findings is the root.

A leak explains the OOM kill, swap explains the slow steps, a dead worker explains the hang. What is sure stands before
what is a guess; among the sure ones the way from cause to effect decides, not how sure each of them is.
"""

from __future__ import annotations

from collections.abc import Collection

from holter.finding import GRADE_ORDER, Ending, Finding

# What is out of order with the machine, then with memory, then with the work itself, then how it came to an end.
_CAUSE_TO_EFFECT = (
    "device-lost", "disk-full", "resource", "recompile", "leak", "oversize", "fragmentation", "thrash", "hang", "nan",
    "native-crash", "user-error", "early-stop", "input-bound", "overhead", "external", "cpu",
)  # fmt: skip

# What makes a run slow, large or worthless, but does not make it stop with an error of its own.
_NEVER_RAISES = ("recompile", "leak", "thrash", "input-bound", "overhead", "cpu", "nan.unexplained")
_ITS_OWN_END = ("native-crash", "user-error")


def in_order(findings: Collection[Finding], ending: Ending) -> tuple[Finding, ...]:
    """Put the root cause first and what follows from it after."""
    own_end = ending.kind in ("exception", "crashed") and any(
        finding.family in _ITS_OWN_END and finding.grade != "hypothesis" for finding in findings
    )

    def weight(finding: Finding) -> tuple[bool, bool, int, int, str]:
        family = finding.family
        aside = own_end and (family in _NEVER_RAISES or finding.cause in _NEVER_RAISES)
        place = _CAUSE_TO_EFFECT.index(family) if family in _CAUSE_TO_EFFECT else len(_CAUSE_TO_EFFECT)
        return finding.grade == "hypothesis", aside, place, GRADE_ORDER.get(finding.grade, 9), finding.cause

    return tuple(sorted(findings, key=weight))
