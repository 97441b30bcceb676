"""Pages that come back again and again, against swap that lies still and caches that are thrown out."""

from __future__ import annotations

import pytest
from build import GB, MB, TRAINER, causes, ordinary_run, without_memory

from holter.diagnosis.core.doctor import verdict

LINE = {"file": "/home/u/train.py", "line": 12, "function": "main", "code": "x = table[idx]", "user": True}


def paging(
    record, begin, end, *, anon=8000, file=0, faults=7000, waited=0.16, computing=0.25, kernel=0.35, swap=300 * MB,
    carry=None,
):  # fmt: skip
    """Add readings once a second in which so many pages a second came back; counters go on from `carry`."""
    have = carry or {"anon": 0.0, "file": 0.0, "faults": 0.0, "some": 0.0, "cpu": 10.0, "sys": 1.0, "hits": 0}
    for second in range(begin, end):
        have["anon"] += anon
        have["file"] += file
        have["faults"] += faults
        have["some"] += waited * 1e6
        have["cpu"] += computing + kernel
        have["sys"] += kernel
        have["hits"] += 1 if anon or file else 0
        row = {"pid": TRAINER, "name": "python", "rss": 600 * MB, "state": "D"}
        record.sample(
            second,
            processes={
                "rss": 600 * MB, "swap": swap, "majflt": have["faults"], "cpu_s": have["cpu"], "sys_s": have["sys"],
                "threads": 4, "list": [row],
            },
            cgroup={
                "path": "/a", "limit": 600 * MB, "usage": 599 * MB, "file": 0, "oom_kill": 0, "swap_usage": swap,
                "swap_limit": 2 * GB, "refault_anon": have["anon"], "refault_file": have["file"],
                "at_limit": have["hits"],
            },
            memory={"total": 64 * GB, "available": 50 * GB, "swap_total": 2 * GB, "swap_free": 1 * GB},
            pressure={"memory": {"some_us": have["some"], "full_us": 0, "some10": 0, "full10": 0}},
            vm={"oom_kill": 7, "pswpin": have["anon"]},
        )  # fmt: skip
    return have


def looks(record, *at, line=LINE):
    """Add stacks that were taken while pages came back."""
    for second in at:
        threads = [{"name": "MainThread", "main": True, "frames": [line, {**line, "line": 30, "function": "<module>"}]}]
        record.event("stacks", second, pid=TRAINER, reason="slow", via="faulthandler", threads=threads)
    return record


def swapping(**more):
    """A run of a minute that swaps from its first step on."""
    record = without_memory(ordinary_run(), 0)
    paging(record, 0, 60, **more)
    return record


def test_a_working_set_over_memory():
    """Completed, slowly: the traffic, the price and the line it waited on."""
    record = looks(swapping(), 20, 25, 30).exit(60, 0)

    finding = verdict(record).findings[0]

    assert (finding.cause, finding.grade) == ("thrash.swap", "established")
    assert (finding.culprit.line, finding.culprit.code) == (12, "x = table[idx]")
    assert "300 MB of it lay in swap" in finding.claim
    assert "accumulation" in finding.cures[0].title


def test_steps_that_were_quick_before():
    """Steps that took twenty times as long once it swapped are part of the claim."""
    record = without_memory(ordinary_run(steps=False), 0)
    have = paging(record, 0, 20, anon=0, faults=0, waited=0, computing=1.0, kernel=0.1, swap=0)
    paging(record, 20, 60, carry=have)
    for second in range(5, 20):
        record.steps(second, (second - 4) * 10, sum=0.5)
    for second in range(22, 60, 2):
        record.steps(second, 150 + (second - 20) // 2, n=1, sum=1.0)

    finding = verdict(record.exit(60, 0)).findings[0]

    assert finding.cause == "thrash.swap"
    assert "steps took 1.0 s instead of 50 ms" in finding.claim


@pytest.mark.parametrize("how", [{"code": None, "signal": "SIGKILL"}, {"code": 130, "signal": "SIGINT"}, {"code": 143}])
def test_a_run_that_was_given_up(how):
    """Ended by hand in the middle of it: the cause stands first."""
    assert causes(verdict(swapping().exit(60, **how)))[0] == "thrash.swap"


def test_a_run_that_is_on():
    """It is told while it lasts."""
    record = swapping()
    record.live = True

    diagnosis = verdict(record)

    assert diagnosis.ending.kind == "running"
    assert causes(diagnosis)[0] == "thrash.swap"


def test_a_stall_in_it_is_no_hang():
    """So deep in swap that no step ends: still swap."""
    record = swapping()
    fields = {"since": 120.0, "limit": 12.0, "cpu": 0.02, "same_place": True, "state": "D", "phase": "forward"}
    record.timeline = [line for line in record.timeline if line["k"] != "steps" or line["m"] < 120]
    record.event("stall", 40, pid=TRAINER, step=150, file="/home/u/train.py", line=12, **fields).exit(
        60, None, "SIGINT"
    )

    assert causes(verdict(record)) == ["thrash.swap"]


def test_files_that_are_read_again():
    """Without swap it is the mapped file that is thrown out."""
    record = swapping(anon=0, file=200_000, faults=200, computing=0.02, kernel=0.4, swap=0)

    finding = verdict(looks(record, 20, 30).exit(60, 0)).findings[0]

    assert (finding.cause, finding.grade) == ("thrash.reclaim", "established")
    assert finding.culprit.line == 12


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("idle swap", {"anon": 20, "faults": 15, "waited": 0.0, "computing": 0.95}),
        ("a stream that keeps its pace", {"anon": 0, "file": 100_000, "faults": 6, "waited": 0.05, "computing": 0.6}),
        ("a stream read without mapping", {"anon": 0, "file": 60_000, "faults": 0, "waited": 0.07, "computing": 0.7}),
        ("near the limit", {"anon": 0, "faults": 0, "waited": 0.0, "computing": 1.0, "swap": 0}),
        ("a neighbour that swaps", {"anon": 9000, "faults": 0, "waited": 0.2, "computing": 0.9, "swap": 0}),
    ],
)
def test_look_alikes(name, figures):
    """What is not needed again, or not waited for, is no illness."""
    assert verdict(swapping(**figures).exit(60, 0)).healthy, name


def test_a_burst_while_loading():
    """Pages that came back before the first step and no more after it."""
    record = without_memory(ordinary_run(steps=False), 0)
    have = paging(record, 0, 25)
    paging(record, 25, 60, anon=5, faults=3, waited=0, computing=1.0, kernel=0.1, carry=have)
    for second in range(26, 60):
        record.steps(second, (second - 25) * 10)

    assert verdict(record.exit(60, 0)).healthy


def test_a_moment_in_the_middle():
    """A few seconds of it, as for a checkpoint."""
    record = without_memory(ordinary_run(), 0)
    have = paging(record, 0, 30, anon=0, faults=0, waited=0, computing=1.0, kernel=0.1, swap=0)
    have = paging(record, 30, 38, carry=have)
    paging(record, 38, 60, anon=5, faults=3, waited=0, computing=1.0, kernel=0.1, carry=have)

    assert verdict(record.exit(60, 0)).healthy
