"""Claims and their own figures: what contradicts itself is found, and the rules that once did no longer do."""

from __future__ import annotations

import pytest
from build import GB, MB, TRAINER, WORKER, memory, ordinary_run, without_memory
from tests.claims import contradictions

from holter.diagnosis.core.doctor import verdict

LIMIT = "of the container's limit of 1.6 GB"
GREW = "growth: 620 MB in 90 steps, "


def contradictions_in(claim, cause="oversize.spike", kind="oom-killed", step=36, evidence=""):
    what, _, value = evidence.partition(": ")
    found = {"cause": cause, "claim": claim, "evidence": [{"what": what, "value": value}]}
    return contradictions({"ending": {"kind": kind, "at_step": step}, "findings": [found]})


@pytest.mark.parametrize(
    ("claim", "evidence"),
    [
        (f"memory had been steady at 604 MB for 36 steps, then it reached 605 MB, 38 % {LIMIT}", ""),
        (f"memory had been steady at 1.5 GB for 36 steps, then it reached 1.5 GB, 94 % {LIMIT}", ""),
        (f"before the first step it reached 1.7 GB, 106 % {LIMIT}", ""),
        (f"before the first step it reached 1.5 GB, 60 % {LIMIT}", ""),
        ("memory grew 6.9 MB per step and stands at 1.0 GB of it", GREW + "1.6 MB to 5.9 MB per step"),
        ("memory grew 6.9 MB per step and stands at 1.0 GB of it", "growth: 620 MB in 300 steps"),
        ("memory grew 6.9 MB per step and stands at 0.3 GB of it", GREW),
        ("memory grew 6.9 MB per step since step 55 and reached the container's limit", ""),
        ("2 data workers copied 1.9 GB of memory: memory stood at 1.0 GB before them, and it reached 1.5 GB", ""),
    ],
)  # fmt: skip
def test_a_claim_that_its_figures_contradict_is_found(claim, evidence):
    """A limit that was far, a jump to where it was, parts larger than the whole, two rates, steps never made."""
    assert contradictions_in(claim, evidence=evidence)


@pytest.mark.parametrize(
    ("claim", "evidence"),
    [
        (f"memory had been steady at 604 MB for 36 steps, then it reached 1.6 GB, 99 % {LIMIT}", ""),
        ("the kernel killed it at the container's limit of 1.6 GB; the last reading, 1.0 s before, was 605 MB", ""),
        ("memory grew 6.9 MB per step and stands at 1.0 GB of it", GREW + "6.6 MB to 7.0 MB per step"),
        ("memory grew 6.9 MB per step since step 33 and reached the container's limit", ""),
    ],
)  # fmt: skip
def test_a_claim_that_holds_is_left_alone(claim, evidence):
    """Figures that go together, and a claim that says what was not seen."""
    assert contradictions_in(claim, evidence=evidence) == []


def killed(used, rows=None, seconds=60):
    record = without_memory(ordinary_run(seconds=seconds), 0)
    for second in range(seconds):
        memory(record, second, used(second), rows=rows(second) if rows else None)
    return memory(record, seconds + 0.2, 1 * MB, oom_kill=1).exit(seconds, 137, "SIGKILL")


def test_growth_between_two_readings_is_told_as_unseen():
    """The kernel killed it at a limit of which the last reading saw a quarter: both are said, and why."""
    claim = verdict(killed(lambda _: 2 * GB)).findings[0].claim

    assert "the kernel killed it at the container's limit of 8.0 GB" in claim
    assert "was 2.0 GB: it grew faster than it was read" in claim
    assert "25 %" not in claim


def test_the_victim_is_not_blamed_for_what_others_took():
    """The kernel takes a worker that has stood still while the trainer grew: the run's own curve is told."""

    def rows(second):
        sizes = {TRAINER: 1 * GB + second * 0.11 * GB, WORKER: 0.4 * GB}
        return [{"pid": pid, "name": "python", "rss": rss, "fds": 9, "state": "S"} for pid, rss in sizes.items()]

    record = killed(lambda second: 1.4 * GB + second * 0.11 * GB, rows)
    record.event("guest", 2, pid=WORKER, ppid=TRAINER, role="worker")
    record.event(
        "kernel", 60, kind="oom", oom=True, pid=WORKER, victim="python", text="Killed process", anon_rss=0.4 * GB
    )
    found = verdict(record).findings[0]

    assert found.cause.startswith("leak")
    assert "MB per step" in found.claim
