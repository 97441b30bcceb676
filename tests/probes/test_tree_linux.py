"""Which processes belong to a run."""

from __future__ import annotations

import os
import shutil
import signal
import sys

import pytest

if sys.platform != "linux":
    pytest.skip("/proc", allow_module_level=True)

from holter.probes.procfs_linux import parse_stat
from holter.probes.tree_linux import TreeFinder, descendants

# The middle process ends at once, so that the grandchild belongs to init.
ORPHAN = """
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        {leave}
        print(os.getpid(), flush=True)
        time.sleep(600)
    time.sleep({middle_lives})
    os._exit(0)
time.sleep(600)
"""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def line(pid: int, ppid: int, start: int, *, name: str = "python", pgrp: int = 1, session: int = 1) -> bytes:
    fields = f"{pid} ({name}) S {ppid} {pgrp} {session} 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 {start} 1 1 0 0 0\n"
    return fields.encode()


def write(proc, pid: int, ppid: int, start: int, **more) -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "stat").write_bytes(line(pid, ppid, start, **more))


@pytest.mark.parametrize("name", ["a) R 1 (b", "two words", "new\nline", "((", "", "))) S 1 1 1"])
def test_hostile_names(name):
    """A process may call itself anything: its parent and start time are still read right."""
    stat = parse_stat(line(7, 3, 99, name=name))

    assert (7, name, "S", 3, 99) == (stat.pid, stat.name, stat.state, stat.ppid, stat.start)


def test_name_that_is_no_text():
    """A name that is not UTF-8 becomes text that JSON can carry."""
    stat = parse_stat(line(7, 3, 99).replace(b"python", b"\xff\xfe"))

    assert stat.name.encode("utf-8")


def test_descendants_by_scan(start):
    """Without lists of children, a scan of /proc finds a child and its child, and nobody else."""
    process = start(
        "import os, time\nif os.fork() == 0:\n    if os.fork() == 0:\n        print(1, flush=True)\ntime.sleep(600)"
    )

    found = descendants(process.pid)

    assert found[0] == process.pid
    assert len(found) == 3
    assert os.getpid() not in found


def test_descendants_by_lists(recorded):
    """Where the kernel lists children, those of every thread are found."""
    assert sorted(descendants(50, recorded("children_lists"))) == [50, 51, 52, 53]


def test_descendants_of_nobody(recorded):
    """A process that is gone has no tree."""
    assert descendants(99, recorded("children_lists")) == []


def test_finder_by_lists(tmp_path, recorded):
    """Between full scans the lists of children are used when the tree has fewer threads than /proc has processes."""
    clock = Clock()
    shutil.copytree(recorded("children_lists"), tmp_path / "proc")
    for pid in range(900, 910):
        write(tmp_path / "proc", pid, 1, 3)
    finder = TreeFinder(50, str(tmp_path / "proc"), clock)
    assert sorted(finder.find()) == [50, 51, 52, 53]
    write(tmp_path / "proc", 70, 51, 700)
    (tmp_path / "proc/51/task/51/children").write_text("70")

    assert 70 in finder.find()


def test_orphan_that_was_seen_stays(start, until):
    """A grandchild whose parent has ended, with a session of its own, stays in the tree."""
    process = start(ORPHAN.format(leave="os.setsid()", middle_lives=1))
    orphan = int(process.first_line)
    finder = TreeFinder(process.pid)
    assert orphan in finder.find()

    until(lambda: orphan not in descendants(process.pid))
    found = finder.find()
    os.kill(orphan, signal.SIGKILL)

    assert orphan in found
    until(lambda: orphan not in finder.find())


def test_orphan_that_was_never_seen_is_found_by_its_group(start, until):
    """A grandchild whose parent ended before the first look is found by the command's process group."""
    process = start(ORPHAN.format(leave="pass", middle_lives=0))
    orphan = int(process.first_line)
    until(lambda: orphan not in descendants(process.pid))

    assert orphan in TreeFinder(process.pid).find()


def test_group_outlives_the_command(start):
    """Children that the command left behind are still the run's after the command has ended."""
    process = start("import os,time; print(os.fork(), flush=True); time.sleep(600)")
    finder = TreeFinder(process.pid)
    assert len(finder.find()) == 2

    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    assert len(finder.find()) == 1


def test_neighbours_in_the_shells_session_are_strangers(tmp_path):
    """The shell that started the command, and its other jobs, share the session but not the run."""
    write(tmp_path, 10, 1, 1, pgrp=10, session=10, name="bash")
    write(tmp_path, 20, 10, 2, pgrp=20, session=10)
    write(tmp_path, 21, 20, 3, pgrp=20, session=10)
    write(tmp_path, 30, 10, 4, pgrp=30, session=10, name="vim")

    assert TreeFinder(20, str(tmp_path), Clock()).find() == [20, 21]


def test_reused_pid_is_a_stranger(tmp_path):
    """A pid that was given to someone else is told apart by its start time."""
    clock = Clock()
    write(tmp_path, 20, 1, 2, pgrp=20, session=20)
    write(tmp_path, 21, 20, 3, pgrp=20, session=20)
    finder = TreeFinder(20, str(tmp_path), clock)
    assert finder.find() == [20, 21]

    write(tmp_path, 21, 1, 77, pgrp=21, session=21)
    clock.now = 1
    assert finder.find() == [20]
    clock.now = 10
    assert finder.find() == [20]


def test_reused_pid_of_the_command_is_a_stranger(tmp_path):
    """When the command's own pid was given away, neither its new owner nor the owner's children are the run."""
    clock = Clock()
    write(tmp_path, 20, 1, 2, pgrp=20, session=20)
    finder = TreeFinder(20, str(tmp_path), clock)
    finder.find()

    write(tmp_path, 20, 1, 88, pgrp=20, session=20)
    write(tmp_path, 25, 20, 89, pgrp=20, session=20)
    clock.now = 10

    assert finder.find() == []


def test_pid_of_a_stranger_that_joins_later(tmp_path):
    """A pid that belonged to a stranger and now to a child is found by the next full scan."""
    clock = Clock()
    write(tmp_path, 20, 1, 2, pgrp=20, session=20)
    write(tmp_path, 30, 1, 2, pgrp=30, session=30)
    finder = TreeFinder(20, str(tmp_path), clock)
    assert finder.find() == [20]

    write(tmp_path, 30, 20, 90, pgrp=20, session=20)
    clock.now = 6

    assert finder.find() == [20, 30]


def test_no_search_while_nobody_forks(tmp_path):
    """While the newest pid of the machine is the same, nobody is looked for until the next full scan."""
    clock = Clock()
    write(tmp_path, 20, 1, 2, pgrp=20, session=20)
    (tmp_path / "loadavg").write_text("0.00 0.04 0.05 3/83 20\n")
    finder = TreeFinder(20, str(tmp_path), clock)
    finder.find()
    write(tmp_path, 21, 20, 3, pgrp=20, session=20)

    assert finder.find() == [20]
    (tmp_path / "loadavg").write_text("0.00 0.04 0.05 3/83 21\n")
    assert finder.find() == [20, 21]
    write(tmp_path, 22, 20, 4, pgrp=20, session=20)
    clock.now = 6
    assert finder.find() == [20, 21, 22]


def test_a_child_is_seen_at_the_next_look(start):
    """A real child that was forked between two looks is in the second, without waiting for a full scan."""
    process = start("import os, time; print(1, flush=True); input(); print(os.fork(), flush=True); time.sleep(600)")
    finder = TreeFinder(process.pid, full_scan_every=1e9)
    assert finder.find() == [process.pid]
    assert finder.find() == [process.pid]

    process.stdin.write("\n")
    process.stdin.flush()
    process.stdout.readline()

    assert len(finder.find()) == 2
