"""Memory with shared pages counted once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("/proc", allow_module_level=True)

from holter.errors import NoData
from holter.probes import proportional_linux
from holter.probes.probe import Tree
from holter.probes.processes_linux import Processes
from holter.probes.proportional_linux import Proportional, parse_rollup


def test_recorded_rollup(recorded):
    """The recorded process has 513 kB proportional."""
    raw = Path(recorded("machine/smaps_rollup")).read_bytes()

    assert parse_rollup(raw) == {"pss": 513 * 1024, "rss": 1724 * 1024, "file": 397 * 1024}


def test_shared_pages_count_once(start):
    """Three processes that share 50 MB hold 50 MB together, though each one's RSS has them."""
    process = start(
        "import os, time\n"
        "x = b'x' * 50_000_000\n"
        "a = os.fork()\n"
        "b = a and os.fork()\n"
        "a and b and print(a, b, flush=True)\n"
        "time.sleep(600)"
    )
    tree = Tree(process.pid, [process.pid, *map(int, process.first_line.split())])

    reading = Proportional().read(tree)

    assert Processes().read(tree)["rss"] > 150e6
    assert 50e6 < reading["pss"] < 80e6
    assert len(reading["list"]) == 3


def test_rests_after_its_cost(start):
    """A reading that took 0.2 s is followed by at least 200 s of rest."""
    process = start("print(1, flush=True); import time; time.sleep(600)")
    ticks = iter([10.0, 10.2])
    probe = Proportional(clock=lambda: next(ticks))

    probe.read(Tree(process.pid, [process.pid]))

    assert probe.every == pytest.approx(200)


def test_the_first_readings_come_soon(start):
    """A run of ten seconds is measured several times, one of a day once a minute."""
    process = start("print(1, flush=True); import time; time.sleep(600)")
    probe = Proportional(clock=lambda: 0.0)
    waits = []
    for _ in range(25):
        waits.append(probe.every)
        probe.read(Tree(process.pid, [process.pid]))

    assert sum(waits[:4]) < 5
    assert probe.every == 60


def test_large_processes_are_left_alone(start, monkeypatch):
    """A process that is too large is not walked, and no sum is given that would lack it."""
    small = start("print(1, flush=True); import time; time.sleep(600)")
    large = start("x = b'x' * 50_000_000; print(1, flush=True); import time; time.sleep(600)")
    monkeypatch.setattr(proportional_linux, "TOO_LARGE_BYTES", 40_000_000)

    reading = Proportional().read(Tree(small.pid, [small.pid, large.pid]))

    assert [small.pid] == [row["pid"] for row in reading["list"]]
    assert "pss" not in reading
    with pytest.raises(NoData, match="too large"):
        Proportional().read(Tree(large.pid, [large.pid]))


def test_gone_process_is_no_failure():
    """A tree that has just ended gives no reading and no complaint."""
    assert Proportional().read(Tree(2**22 + 1, [2**22 + 1])) == {}
