"""The macOS probes that go through psutil, run here on whatever system the tests run on: psutil is the same."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from holter.probes.disk_macos import Disk
from holter.probes.load_macos import Load
from holter.probes.network_macos import Network
from holter.probes.probe import Tree
from holter.probes.processes_macos import Processes
from holter.probes.rlimits_macos import Rlimits
from holter.probes.tree_macos import TreeFinder, descendants


def test_child_that_allocates_shows_it(start):
    """A child that fills 50 MB has 50 MB more than one that does not."""
    small = start("print(1, flush=True); import time; time.sleep(600)")
    large = start("x = b'x' * 50_000_000; print(1, flush=True); import time; time.sleep(600)")

    held = [Processes().read(Tree(p.pid, [p.pid]))["rss"] for p in (small, large)]

    assert 45e6 < held[1] - held[0] < 60e6


def test_row_of_a_process(start):
    """The list has the names of the record, and nothing of our own book-keeping."""
    process = start("print(1, flush=True); import time; time.sleep(600)")

    reading = Processes().read(Tree(process.pid, [process.pid]))

    row = reading["list"][0]
    assert set(row) <= {"pid", "ppid", "name", "state", "rss", "swap", "shared", "cpu_s", "majflt", "threads", "fds"}
    assert (process.pid, os.getpid(), 1) == (row["pid"], row["ppid"], row["threads"])
    assert row["state"] in ("R", "S")
    assert reading["count"] == 1


def test_counters_of_the_dead_stay(start):
    """CPU time of a process that has ended stays in the total, and its pid alone raises nothing."""
    root = start("print(1, flush=True); import time; time.sleep(600)")
    busy = start("x = sum(range(10_000_000)); print(1, flush=True); import time; time.sleep(600)")
    probe = Processes()
    before = probe.read(Tree(root.pid, [root.pid, busy.pid]))
    busy.kill()
    busy.wait()

    after = probe.read(Tree(root.pid, [root.pid, busy.pid]))

    assert after["cpu_s"] >= before["cpu_s"] > 0.05
    assert after["count"] == 1


def test_tree(start):
    """A child is found, and stays when its parent has ended."""
    process = start("import os, time; a = os.fork(); a and print(a, flush=True); time.sleep(600)")
    child = int(process.first_line)
    finder = TreeFinder(process.pid)
    assert [process.pid, child] == descendants(process.pid)
    assert [process.pid, child] == finder.find()

    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    assert [child] == finder.find()


def test_tree_of_nobody():
    """A process that never was has no tree."""
    assert TreeFinder(2**22 + 1).find() == []


def test_orphan_is_found_by_the_group(start, until):
    """A grandchild that lost its parent before the first look is found by the command's process group."""
    process = start(
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    if os.fork() == 0:\n"
        "        print(os.getpid(), flush=True); time.sleep(600)\n"
        "    os._exit(0)\n"
        "os.wait(); time.sleep(600)"
    )
    orphan = int(process.first_line)
    until(lambda: orphan not in descendants(process.pid))

    assert orphan in TreeFinder(process.pid).find()


def test_disk(start, tmp_path):
    """The file systems of the working folder and the records are there, each once."""
    process = start("print(1, flush=True); import time; time.sleep(600)")

    rows = Disk(home=str(tmp_path / "not" / "yet")).read(Tree(process.pid, [process.pid]))["list"]

    space = os.statvfs(tmp_path)
    assert space.f_blocks * space.f_frsize in [row["total"] for row in rows]
    assert len(rows) == len({row["mount"] for row in rows})


def test_load_and_limits():
    """The load has the CPUs beside it, and a limit that is not set is absent."""
    assert os.cpu_count() == Load().read(Tree(1, [1]))["cpus"]
    assert all(value >= 0 for value in Rlimits().read(Tree(1, [1])).values())


def test_network():
    """Loopback is left out."""
    names = set(psutil.net_io_counters(pernic=True)) - {"lo", "lo0"}
    if not names:
        pytest.skip("no network interface")

    reading = Network().read(Tree(1, [1]))

    assert reading["rx_bytes"] <= psutil.net_io_counters().bytes_recv
