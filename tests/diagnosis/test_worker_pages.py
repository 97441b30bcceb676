"""Pages that forked workers copy, by the sum over the run: constructed readings, after those of real runs."""

from __future__ import annotations

import pytest
from build import GB, MB, TRAINER, WORKER, causes, ordinary_run, without_memory

from holter.diagnosis.core.doctor import verdict
from holter.diagnosis.memory.worker_pages import copied_pages

FILE = "/home/u/train.py"
LIMIT = 3 * GB
SHARED = 1 * GB
WORKERS = (WORKER, WORKER + 1)


def workers_read(
    *, copied=lambda _: 0.0, own=lambda _: 0.0, objects=0.6 * GB, kind="object", kill=True, limit=LIMIT,
    container=True, forked=True, victim_held=0.0,
):  # fmt: skip
    """Two workers from second 3 on, which by second 9 have copied so much each, and taken so much for themselves.

    With `victim_held` the kernel then kills the trainer, which held that much, and one more reading is without it.
    """
    record = without_memory(ordinary_run(seconds=10), 0)
    for second in range(10):
        there = WORKERS if second >= 3 else ()
        sizes = {TRAINER: SHARED} | {pid: (SHARED if forked else 0.0) + own(second) for pid in there}
        used = SHARED + sum(copied(second) + own(second) + (0 if forked else SHARED) for _ in there)
        listed = [{"pid": pid, "name": "python", "rss": rss, "shared": 0, "state": "S"} for pid, rss in sizes.items()]
        probes = {"processes": {"rss": sum(sizes.values()), "threads": 4, "count": len(listed), "list": listed}}
        if container:
            probes["cgroup"] = {"path": "/a", "limit": limit, "usage": used, "anon": used, "file": 0, "oom_kill": 0}
        else:
            rows = [{"pid": pid, "rss": rss, "pss": 0, "uss": 0} for pid, rss in sizes.items()]
            probes["proportional"] = {"pss": used, "rss": sum(sizes.values()), "uss": 0, "list": rows}
        record.sample(second, **probes)
    if victim_held:
        words = {"kind": "oom", "oom": True, "victim": "python", "text": "Killed process", "anon_rss": victim_held}
        record.event("kernel", 9.4, pid=TRAINER, **words)
        rows = [row for row in listed if row["pid"] != TRAINER]
        record.sample(9.5, processes=probes["processes"] | {"list": rows}, cgroup=probes["cgroup"])
    for pid in WORKERS:
        record.event("guest", 2.5, pid=pid, ppid=TRAINER, role="worker", **({"inherited": SHARED} if forked else {}))
    row = {"name": "dataset.rows", "variable": "rows", "scope": "attribute", "owner": "Rows", "file": FILE}
    row |= {"type": "list", "kind": kind, "element": "dict", "length": 10**6, "bytes": objects}
    fields = {"step": 0, "step_before": 0, "rss": SHARED, "rss_before": SHARED, "all": True, "looked_at": 9}
    record.event("held", 2.6, pid=WORKER, role="worker", census=0, list=[row] if objects else [], **fields)
    record.sources[FILE] = ["class Rows:", "    def __init__(self):", "        self.rows = read(path)"]
    if not kill:
        return record.exit(10, 0)
    last = {"path": "/a", "limit": limit, "usage": 1 * MB, "anon": 1 * MB, "file": 0, "oom_kill": 1}
    return record.sample(10.1, cgroup=last).exit(10, 137, "SIGKILL")


def more_each_second(second):
    return 0.16 * GB * (second - 3)


def test_a_run_that_grows_while_no_process_does_copies_pages():
    """The container counts more and more, each process stays as large as it was: the workers copy what they share."""
    diagnosis = verdict(workers_read(copied=more_each_second))

    assert causes(diagnosis)[0] == "leak.worker-copy"
    assert diagnosis.findings[0].grade == "supported"
    assert "2 data workers copied 1.9 GB" in diagnosis.findings[0].claim
    assert "reading `dataset.rows` (1,000,000 Python objects)" in diagnosis.findings[0].claim
    assert diagnosis.findings[0].culprit.line == 3


def test_without_a_container_the_proportional_sizes_tell_it():
    """Shared pages count once in them: their sum grows by what is copied."""
    record = workers_read(copied=more_each_second, container=False, kill=False)

    assert copied_pages(record).grown == pytest.approx(2 * 0.96 * GB, rel=0.05)
    assert causes(verdict(record)) == []  # 2.9 of 64 GB are nobody's trouble


def test_copies_that_fit_are_a_guess_and_near_the_limit_a_finding():
    """A run that came to its end with room to spare is healthy; at 96 % of the limit it is told."""
    fits = verdict(workers_read(copied=more_each_second, kill=False, limit=6 * GB))
    tight = verdict(workers_read(copied=more_each_second, kill=False))

    assert [(one.cause, one.grade) for one in fits.findings] == [("leak.worker-copy", "hypothesis")]
    assert fits.healthy
    assert [(one.cause, one.grade) for one in tight.findings] == [("leak.worker-copy", "supported")]


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"own": more_each_second}, id="they grow themselves"),
        pytest.param({"forked": False}, id="they share nothing"),
        pytest.param({"copied": more_each_second, "objects": 5 * MB}, id="a dataset that is small"),
        pytest.param({"copied": lambda second: 0.04 * GB * (second - 3), "objects": 0}, id="a dataset of a file"),
        pytest.param({"copied": lambda second: 0.04 * GB * (second - 3), "kind": "array"}, id="a dataset of arrays"),
        pytest.param({"copied": lambda second: 0.95 * GB * (second == 9)}, id="one reading of a moment"),
    ],
)
def test_what_else_a_run_with_workers_may_hold_is_no_copy(how):
    """Other memory of workers, the pages of the interpreter itself, a reading that nothing confirms: silence."""
    assert "leak.worker-copy" not in causes(verdict(workers_read(**how)))


@pytest.mark.parametrize(("grown", "found"), [(0.0, ["leak.worker-copy"]), (1 * GB, [])], ids=["no", "by it all"])
def test_one_reading_will_do_where_no_size_explains_it(grown, found):
    """The trainer is killed a moment after the first copies: what the kernel says it held tells if it was its own."""
    at_once = workers_read(copied=lambda second: 0.5 * GB * (second == 9), victim_held=SHARED + grown)

    assert [cause for cause in causes(verdict(at_once)) if cause == "leak.worker-copy"] == found


def test_an_array_that_workers_write_to_is_copied_by_writing():
    """A dataset without Python objects whose pages are copied all the same is being written to."""
    diagnosis = verdict(workers_read(copied=more_each_second, kind="array", objects=0.9 * GB))

    assert causes(diagnosis)[0] == "leak.worker-copy"
    assert "by writing to `dataset.rows`" in diagnosis.findings[0].claim
    assert "copy" in diagnosis.findings[0].cures[0].title
