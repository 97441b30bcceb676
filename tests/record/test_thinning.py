"""A week stays small, keeps its highs and its counts, and the last half hour whole."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holter.record import place
from holter.record.events.timeline import Processes, Sample, StepWindow
from holter.record.reader import open_record
from holter.record.thinning import interval_for, thin
from holter.record.writer import RecordWriter

WEEK = 7 * 86400
PROCESS = {"ppid": 1, "name": "python", "state": "S", "swap": 0, "shared": 1 << 27, "threads": 12, "fds": 40}


def sample(m: int, rss: int) -> dict[str, Any]:
    """A sample about as large as a real one with nine processes."""
    listed = [{"pid": 100 + n, "rss": rss // 9, "cpu_s": m * 0.1, "majflt": 3, **PROCESS} for n in range(9)]
    return {
        "k": "sample",
        "t": m + 1.7e9,
        "m": float(m),
        "processes": {"rss": rss, "cpu_s": m * 0.93, "minflt": m * 13, "ctx_voluntary": m * 7, "list": listed},
        "cgroup": {"version": 2, "limit": 1 << 34, "usage": rss + (1 << 30), "anon": rss, "oom_kill": 0},
        "memory": {"total": 1 << 36, "available": (1 << 36) - rss, "free": 1 << 33, "cached": 1 << 32},
        "pressure": {
            name: {"some_us": m * 11, "full_us": m * 3, "some10": 0.1, "full10": 0.0} for name in ("memory", "io")
        },
        "pace": "calm",
    }


def test_a_week_stays_small_and_keeps_what_matters(tmp_path: Path) -> None:
    """Below 50 MB, the last 30 minutes whole, the memory's peaks and the number of steps as they were."""
    folder = place.new_run(tmp_path)
    now = [0.0]
    writer = RecordWriter(folder, lambda: now[0])
    writer.meta({"schema": 1})
    # What lies back more than an hour is thinned to ten seconds and more: lines that would go are left out here.
    moments = [*range(0, WEEK - 86400, 30), *range(WEEK - 86400, WEEK - 7200, 10), *range(WEEK - 7200, WEEK)]
    peaks = {random.Random(3).choice(moments) for _ in range(12)}
    largest, before = 0, -1
    for m in moments:
        now[0] = float(m)
        first, n = before * 10 + 11, (m - before) * 10
        before = m
        steps = {"k": "steps", "t": m + 1.7e9, "m": float(m), "pid": 7, "n": n, "first": first, "last": first + n - 1}
        rss = (9 << 30) + m if m in peaks else 4 << 30
        writer.timeline([sample(m, rss), {**steps, "sum": n / 10, "min": 0.1, "max": 0.1}])
        if m % 43200 == 0:
            largest = max(largest, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
    writer.close()
    record = open_record(folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    kept = [line.m for line in record.of(Sample)]
    recent = [m for m in kept if m >= WEEK - 1800]

    assert max(size, largest) < 50e6
    assert recent == [float(m) for m in range(WEEK - 1800, WEEK)]
    assert {m for m, r in record.readings(Processes) if (r.rss or 0) > 8 << 30} == {float(m) for m in peaks}
    assert sum(line.n or 0 for line in record.of(StepWindow)) == WEEK * 10
    assert record.of(StepWindow)[-1].last == WEEK * 10
    assert max(b - a for a, b in itertools.pairwise(kept)) <= 600
    assert not record.damage


@given(st.lists(st.tuples(st.floats(0, 600), st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=60))
def test_the_highest_of_each_source_and_the_last_sample_always_stay(rows: list[tuple[float, int, int]]) -> None:
    """The cgroup's high and the tree's high need not be one sample: both stay."""
    lines = [
        {"k": "sample", "t": m, "m": m, "processes": {"rss": rss}, "cgroup": {"usage": usage}}
        for m, rss, usage in sorted(rows)
    ]

    kept = thin(lines, 60.0)

    assert max(line["processes"]["rss"] for line in kept) == max(line["processes"]["rss"] for line in lines)
    assert max(line["cgroup"]["usage"] for line in kept) == max(line["cgroup"]["usage"] for line in lines)
    assert kept[-1]["m"] == lines[-1]["m"]
    assert len(kept) <= 11 * 3


def test_a_probe_that_spoke_rarely_is_carried_over_with_its_last_word() -> None:
    """A reading in a sample that goes is kept in the one that stays, and the latest of two wins."""
    lines: list[dict[str, Any]] = [{"k": "sample", "t": m, "m": m, "processes": {"rss": m}} for m in range(10)]
    lines[2]["disk"], lines[6]["disk"] = {"list": ["old"]}, {"list": ["new"]}

    (kept,) = thin(lines, 10.0)

    assert kept["disk"] == {"list": ["new"]}
    assert kept["m"] == 9


def test_of_the_rest_the_last_of_each_stays() -> None:
    """Device figures are cumulative: one per process, device and interval is enough."""
    lines = [{"k": "device", "t": m, "m": m, "pid": 7, "device": m % 2, "peak": m} for m in range(10)]

    assert [line["peak"] for line in thin(lines, 10.0)] == [8, 9]


def test_the_last_half_hour_is_never_thinned() -> None:
    """Intervals grow with age, and begin at half an hour."""
    assert [interval_for(age) for age in (0, 1799, 1800, 6 * 3600, 2 * 86400)] == [0.0, 0.0, 10.0, 60.0, 300.0]


def test_a_line_that_is_not_as_we_wrote_it_does_not_stop_the_writer(tmp_path: Path) -> None:
    """A segment with a damaged line stays as it is, and the next ones are thinned all the same."""
    folder = place.new_run(tmp_path)
    now = [0.0]
    writer = RecordWriter(folder, lambda: now[0])
    writer.meta({"schema": 1})
    steps = {"k": "steps", "t": 0, "m": 0.0, "pid": 7, "n": 1, "first": 1, "last": 1, "loss": {"min": None, "max": "x"}}
    writer.timeline([steps, {**steps, "loss": {"min": 1.0, "max": 2.0, "last": 1.5}}])
    for m in range(0, 2 * 3600, 2):
        now[0] = float(m)
        writer.timeline([{"k": "sample", "t": m, "m": float(m), "processes": {"rss": 1}}])
    writer.close()

    names = sorted(path.name for path in (folder / "timeline").iterdir())
    assert names[:3] == ["000001.jsonl", "000002.jsonl.gz", "000003.jsonl.gz"]
    assert len(open_record(folder).of(StepWindow)) == 2
