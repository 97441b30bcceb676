"""What the run's processes hold and have used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

if sys.platform != "linux":
    pytest.skip("/proc", allow_module_level=True)

from holter.probes.probe import Tree
from holter.probes.processes_linux import Processes

MB = 10**6


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_child_that_allocates_shows_it(start):
    """A child that fills 50 MB has 50 MB more than one that does not."""
    small = start("print(1, flush=True); import time; time.sleep(600)")
    large = start("x = b'x' * 50_000_000; print(1, flush=True); import time; time.sleep(600)")

    held = [Processes().read(Tree(p.pid, [p.pid]))["rss"] for p in (small, large)]

    assert 45 * MB < held[1] - held[0] < 60 * MB


def test_fields_of_the_record(start):
    """Every field that the record names is there for a real process."""
    process = start("print(1, flush=True); import time; time.sleep(600)")

    reading = Processes().read(Tree(process.pid, [process.pid]))

    named = "rss swap cpu_s sys_s majflt ctx_involuntary read_bytes write_bytes threads fds count"
    assert {*named.split(), "list"} == set(reading)
    row = reading["list"][0]
    assert {
        "pid",
        "ppid",
        "name",
        "state",
        "rss",
        "peak",
        "swap",
        "shared",
        "cpu_s",
        "majflt",
        "threads",
        "fds",
    } == set(row)
    assert (process.pid, os.getpid(), 1) == (row["pid"], row["ppid"], row["threads"])
    assert row["state"] in ("R", "S")
    assert len(os.listdir(f"/proc/{process.pid}/fd")) == row["fds"]
    assert 0 < row["shared"] < row["rss"]


def test_stopped_process_says_so(start, until):
    """A process that was stopped is in state T."""
    process = start("print(1, flush=True); import time; time.sleep(600)")
    os.kill(process.pid, signal.SIGSTOP)
    probe = Processes()

    assert until(lambda: probe.read(Tree(process.pid, [process.pid]))["list"][0]["state"] == "T")


def test_counters_of_the_dead_stay(start):
    """CPU time and faults of a process that has ended stay in the totals."""
    root = start("print(1, flush=True); import time; time.sleep(600)")
    busy = start(
        "x = sum(range(10_000_000)); y = b'x' * 50_000_000; print(1, flush=True); import time; time.sleep(600)"
    )
    probe = Processes()
    before = probe.read(Tree(root.pid, [root.pid, busy.pid]))

    busy.kill()
    busy.wait()
    after = probe.read(Tree(root.pid, [root.pid]))

    assert before["cpu_s"] > 0.05
    assert after["cpu_s"] >= before["cpu_s"]
    assert after["count"] == 1
    assert after["rss"] < before["rss"] - 45 * MB


def test_io_of_a_child_is_counted_once(start, tmp_path):
    """The kernel gives a child's I/O to the parent that waits for it: the total has it once, and never steps back."""
    target = tmp_path / "written"
    writer = f"import os; f = open({str(target)!r}, 'wb'); f.write(b'x' * 20_000_000); f.flush(); os.fsync(f.fileno())"
    process = start(
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-S', '-c', {writer + '; print(1, flush=True); input()'!r}],"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True); input(); child.communicate(b'x'); print('waited', flush=True); time.sleep(600)"
    )
    clock = Clock()
    probe = Processes(clock=clock)
    child = int(process.first_line)
    before = probe.read(Tree(process.pid, [process.pid, child]))["write_bytes"]
    if before == 0:
        pytest.skip("this file system does not count writes")

    process.stdin.write("go\n")
    process.stdin.flush()
    process.stdout.readline()
    clock.now += 1
    at_once = probe.read(Tree(process.pid, [process.pid]))["write_bytes"]
    clock.now += 10
    later = probe.read(Tree(process.pid, [process.pid]))["write_bytes"]

    assert before >= 20_000_000
    assert at_once == before
    assert before <= later < before * 1.5


def test_vanished_processes_are_passed_over(start):
    """Pids that are gone cost nothing but their rows, and a tree that is gone gives no reading."""
    process = start("print(1, flush=True); import time; time.sleep(600)")
    gone = subprocess.Popen(["true"])
    gone.wait()
    probe = Processes()

    assert [process.pid] == [row["pid"] for row in probe.read(Tree(process.pid, [process.pid, gone.pid]))["list"]]
    assert probe.read(Tree(gone.pid, [gone.pid])) == {}


def test_details_are_carried_between_looks(start):
    """Descriptors are counted again only after some seconds, and carried until then."""
    process = start(
        "print(1, flush=True); input(); f = [open('/dev/null') for _ in range(40)]; print(2, flush=True); input()"
    )
    clock = Clock()
    probe = Processes(clock=clock)
    tree = Tree(process.pid, [process.pid])
    first = probe.read(tree)["fds"]
    process.stdin.write("\n")
    process.stdin.flush()
    process.stdout.readline()

    clock.now = 0.1
    assert first == probe.read(tree)["fds"]
    clock.now = 5.0
    assert first + 40 == probe.read(tree)["fds"]


def test_zombie_is_listed_as_one(until):
    """A process that has ended and was not waited for is in state Z and holds no memory."""
    process = subprocess.Popen(["true"])
    probe = Processes()
    tree = Tree(process.pid, [process.pid])

    until(lambda: probe.read(tree)["list"][0]["state"] == "Z")
    assert probe.read(tree)["rss"] == 0
    process.wait()


def test_only_the_largest_are_listed(tmp_path):
    """Of a hundred processes the 64 largest are listed, and all are in the totals."""
    for pid in range(1, 101):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(
            f"{pid} (w) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 5 1 {pid} 0 0 0\n"
        )

    reading = Processes(str(tmp_path)).read(Tree(1, list(range(1, 101))))

    assert list(range(100, 36, -1)) == [row["pid"] for row in reading["list"]]
    assert reading["count"] == 100
    assert sum(range(1, 101)) * os.sysconf("SC_PAGE_SIZE") == reading["rss"]
    assert "swap" not in reading  # no file said anything about it
