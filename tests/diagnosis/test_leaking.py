"""Leaks as one reading of a record: where, how fast, since when; and silence on what only looks like one."""

from __future__ import annotations

import math
import random

import pytest
from build import GB, MB, MONO, TRAINER, WALL, WORKER, memory, ordinary_run, without_memory

from holter.diagnosis.core.examined import examined
from holter.diagnosis.ending.ending import ending_of
from holter.diagnosis.leak.leaking import leak_of


def leak(record):
    """Read the leak of a record, whatever the rules make of it."""
    table = examined(record)
    return leak_of(table, ending_of(table))


def trained(curve, seconds=60, *, limit=8 * GB, epochs=0, planned=0, noise=5 * MB, rows=None, end=True):
    """Make a run of ten steps a second whose memory follows a curve over its steps; it completes, if it is to end."""
    record, rng = without_memory(ordinary_run(seconds=seconds), 0), random.Random(3)
    for second in range(seconds):
        step = max(0, (second - 4) * 10)
        used = curve(step) + rng.gauss(0, noise)
        memory(record, second, used, limit, rows=rows(step, used) if rows else None)
    last = (seconds - 5) * 10
    for epoch in range(epochs):
        begin = epoch * last // epochs
        record.event("epoch", 5 + begin / 10, pid=TRAINER, epoch=epoch + 1, step=begin)
    if planned:
        record.event("plan", 5, pid=TRAINER, steps=planned, epochs=max(1, epochs), source="loop")
    record.live = not end
    return record.exit(seconds, 0) if end else record


def killed(record, seconds=60):
    """End a run by the kernel's hand, for lack of memory."""
    record.events = [event for event in record.events if event["k"] not in ("exited", "end")]
    return memory(record, seconds + 0.2, 1 * MB, oom_kill=1).exit(seconds, 137, "SIGKILL")


def test_a_completed_run_that_leaked_much_is_told():
    """Half of the limit in a straight line over all of the run is a leak, though the run came through."""
    found = leak(trained(lambda step: 1 * GB + 7 * MB * step, epochs=5))

    assert (found.where, found.grade, found.ended_run) == ("trainer", "supported", False)
    assert found.per_step == pytest.approx(7 * MB, rel=0.1)
    assert found.words.startswith("memory grew 7.")
    assert found.pids == (TRAINER,)
    assert found.forecast is None


LOOK_ALIKES = {
    "flat": lambda _s: 2 * GB,
    "flat near the limit": lambda _s: 7.8 * GB,
    "warm-up that levels off": lambda s: 1 * GB + 4 * GB * (1 - math.exp(-s / 60)),
    "a slow warm-up": lambda s: 1 * GB + 4 * GB * (1 - math.exp(-s / 180)),
    "a cache that is full after an epoch": lambda s: 1 * GB + 4 * GB * min(1.0, s / 110),
    "teeth": lambda s: 2 * GB + 2 * GB * (s % 140) / 140,
    "one jump": lambda s: 2 * GB + 3 * GB * (s > 300),
    "a small growth": lambda s: 2 * GB + 0.5 * MB * s,
    "a rise and a fall": lambda s: 2 * GB + 4 * GB * math.sin(math.pi * s / 550),
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
@pytest.mark.parametrize("epochs", [0, 5])
@pytest.mark.parametrize("end", [True, False])
def test_what_only_looks_like_a_leak_is_no_finding(name, epochs, end):
    """Of a run that completed and of one that is on, neither is told above a guess."""
    found = leak(trained(LOOK_ALIKES[name], epochs=epochs, end=end))

    assert found is None or found.grade == "hypothesis"


def test_a_running_leak_has_a_forecast():
    """The step and the time at which the limit will be met, with bounds around them."""
    found = leak(trained(lambda step: 1 * GB + 7 * MB * step, seconds=45, end=False))

    assert (found.grade, found.ended_run) == ("supported", False)
    assert "step 9" in found.forecast.what or "step 1,0" in found.forecast.what
    assert found.forecast.when == pytest.approx(WALL + 5 + 100, abs=8)
    assert found.forecast.earliest <= found.forecast.when <= found.forecast.latest


def test_a_running_leak_that_the_plan_ends_in_time_is_no_finding():
    """It will be done long before it is full."""
    found = leak(trained(lambda step: 1 * GB + 1.5 * MB * step, seconds=45, end=False, planned=500))

    assert found is None or found.grade == "hypothesis"


def test_growth_within_the_only_epoch_so_far_is_a_guess_at_most():
    """A cache that fills looks just like it."""
    found = leak(trained(lambda step: 1 * GB + 7 * MB * step, seconds=45, epochs=1, end=False))

    assert found is None or found.grade == "hypothesis"


def test_a_killed_run_tells_since_when():
    """Flat for more than half of the run, then a line to the limit: a leak that began there."""
    found = leak(killed(trained(lambda s: 2 * GB + max(0, s - 320) * 26 * MB)))

    assert (found.grade, found.ended_run) == ("supported", True)
    assert found.since_step == pytest.approx(320, abs=30)
    assert "since step 3" in found.words
    assert "reached the container's limit of 8.0 GB" in found.words


@pytest.mark.parametrize("epochs", [4, 5, 11])
def test_growth_by_epoch_is_a_leak_by_epoch(epochs):
    """Something is kept at the end of each epoch until the last one does not fit."""
    each = 550 // epochs
    found = leak(killed(trained(lambda s: 1 * GB + (s // each) * 6.7 * GB / (epochs - 1), epochs=epochs)))

    assert (found.grade, found.at_epoch_ends) == ("supported", True)
    assert found.per_epoch == pytest.approx(6.7 * GB / (epochs - 1), rel=0.15)
    assert "per epoch" in found.words


def test_workers_that_grow_are_not_the_trainer():
    """Two workers take all of the growth, and the trainer none."""

    def rows(_step, used):
        workers = [{"pid": WORKER + n, "rss": (used - 1 * GB) / 2, "role": "worker"} for n in range(2)]
        return [{"pid": TRAINER, "rss": 1 * GB, "role": "trainer"}, *workers]

    found = leak(killed(trained(lambda step: 1.2 * GB + 12 * MB * step, rows=rows)))

    assert found.where == "workers"
    assert set(found.pids) == {WORKER, WORKER + 1}
    assert found.words.startswith("the data workers' memory grew")


def test_pages_that_workers_copy_are_theirs():
    """Resident sizes stand still, the container's usage grows: pages copied on write by the workers."""

    def rows(_step, _used):
        workers = [{"pid": WORKER + n, "rss": 1.2 * GB, "role": "worker"} for n in range(2)]
        return [{"pid": TRAINER, "rss": 1.2 * GB, "role": "trainer"}, *workers]

    found = leak(killed(trained(lambda step: 1.2 * GB + 12 * MB * step, rows=rows)))

    assert found.where == "workers"


def test_swap_is_part_of_the_curve():
    """At the limit the resident part stands still; with what is swapped out the growth goes on."""
    record = without_memory(ordinary_run(), 0)
    for second in range(60):
        used = 0.5 * GB + 0.055 * GB * second
        group = {"path": "/a", "limit": 2 * GB, "usage": min(used, 2 * GB), "file": 0, "oom_kill": 0}
        group |= {"swap_limit": 2 * GB, "swap_usage": max(0.0, used - 2 * GB)}
        row = {"pid": TRAINER, "rss": min(used, 2 * GB), "swap": max(0.0, used - 2 * GB)}
        machine = {"total": 24 * GB, "available": 9 * GB, "swap_total": 4 * GB, "swap_free": 3 * GB}
        record.sample(second, cgroup=group, processes={"rss": row["rss"], "list": [row]}, memory=machine)

    found = leak(record.exit(60, 0))

    assert found.grade == "supported"
    assert found.curve.limit == 4 * GB
    assert "the container's limit with its swap of 4.0 GB" in found.words


def test_a_device_that_fills_is_told_as_one():
    """What the framework holds on the device grows while the host stands still."""
    record = ordinary_run()
    for second in range(5, 60):
        line = {"k": "device", "pid": TRAINER, "device": 0, "allocated": 1 * GB + 0.05 * GB * second}
        record.timeline.append({**line, "m": MONO + second, "t": WALL + second})
        record.sample(second + 0.1, nvidia={"list": [{"index": 0, "total": 8 * GB, "used": 6 * GB, "tree": 6 * GB}]})
    record.timeline.sort(key=lambda line: line["m"])

    found = leak(record.exit(60, 0))

    assert found.where == "device"
    assert found.words.startswith("the device's memory grew")


def test_a_run_without_steps_or_readings_has_no_leak():
    """Nothing known, nothing said."""
    bare = ordinary_run(steps=False)
    bare.timeline = []

    assert leak(bare.exit(60, 0)) is None
    assert leak(ordinary_run(steps=False).exit(60, 0)) is None
